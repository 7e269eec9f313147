"""Which fields make a key, and which must not."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from neuroncompile.errors import ConfigError
from neuroncompile.keys import compile_spec, compiler_flags, graph_spec, pack_spec, spec_key
from neuroncompile.keys.exclusions import MODEL_EXCLUSIONS, NEURON_EXCLUSIONS

MODEL = {
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 64,
    "head_dim": 16,
    "vocab_size": 128,
    "rms_norm_eps": 1e-5,
    "hidden_act": "silu",
    "tie_word_embeddings": True,
    "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0},
}
NEURON = {"batch_size": 1, "seq_len": 64, "tp_degree": 1, "torch_dtype": "bfloat16"}


def spec(model: Any = None, neuron: Any = None, **other: Any) -> dict[str, Any]:
    sections: dict[str, Any] = {
        "backend": "cpu",
        "compiler": {"args": [], "env": {}},
        "optlevel": "1",
        "target": {"platform": "cpu", "arch": "x86_64", "isa": "x86-64-v3"},
        "toolchain": {"torch": "2.13.0"},
        **other,
    }
    return compile_spec(
        model={**MODEL, **(model or {})}, neuron={**NEURON, **(neuron or {})}, **sections
    )


BASE = spec_key(spec())


def test_the_key_is_pinned() -> None:
    """A change here makes every artifact in every store a miss: bump the schema instead."""
    assert BASE == "9fa956a8b183d760692cc258e72d1de3fe6d2f41816a811dab37b09733136939"


@pytest.mark.parametrize("field", sorted(MODEL_EXCLUSIONS))
def test_an_excluded_model_field_keeps_the_key(field: str) -> None:
    assert spec_key(spec(model={field: "x"})) == BASE


@pytest.mark.parametrize("field", sorted(NEURON_EXCLUSIONS))
def test_an_excluded_neuron_field_keeps_the_key(field: str) -> None:
    assert spec_key(spec(neuron={field: "x"})) == BASE


@pytest.mark.parametrize(
    "change",
    [
        {"model": {"head_dim": 32}},
        {"model": {"vocab_size": 129}},
        {"model": {"hidden_act": "gelu"}},
        {"model": {"tie_word_embeddings": False}},
        {"model": {"rope_parameters": {"rope_type": "default", "rope_theta": 5e5}}},
        {"model": {"architectures": ["MistralForCausalLM"]}},
        {"model": {"a_field_nobody_knows": 0}},
        {"model": {"ffn": {"top_k": 2}}},
        {"neuron": {"tp_degree": 2}},
        {"neuron": {"torch_dtype": "float32"}},
        {"neuron": {"seq_len": 128}},
        {"neuron": {"overrides_torch_dtype": False}},  # NxDI then takes the checkpoint's dtype
        {"neuron": {"context_encoding_buckets": [32, 64]}},
        {"neuron": {"a_keyword_nobody_knows": 0}},
        {"target": {"platform": "cpu", "arch": "x86_64", "isa": "x86-64-v4"}},
        {"toolchain": {"torch": "2.13.1"}},
        {"compiler": {"args": ["-O1"], "env": {}}},
        {"optlevel": "2"},
        {"backend": "nxdi"},
    ],
    ids=str,
)
def test_what_changes_a_program_changes_its_key(change: dict[str, Any]) -> None:
    assert spec_key(spec(**change)) != BASE


def test_every_exclusion_has_a_reason_and_a_proof() -> None:
    for table in (MODEL_EXCLUSIONS, NEURON_EXCLUSIONS):
        for name, exclusion in table.items():
            assert exclusion.reason, name
            assert exclusion.proof, name


def test_pad_token_is_in_the_graph_under_fused_speculation() -> None:
    def key(pad: int, fused: bool) -> str:
        return spec_key(spec(model={"pad_token_id": pad}, fused_speculation=fused))

    assert key(0, False) == key(1, False)
    assert key(0, True) != key(1, True)


def test_a_drafts_configs_are_in_the_key_as_its_targets_are() -> None:
    def key(model: dict[str, Any], neuron: dict[str, Any], fused: bool = True) -> str:
        draft = {"model": {**MODEL, **model}, "neuron": {**NEURON, **neuron}}
        return spec_key(spec(draft=draft, fused_speculation=fused))

    base = key({}, {})
    assert base != BASE
    assert key({"_name_or_path": "x"}, {"max_new_tokens": 5}) == base
    assert key({"vocab_size": 256}, {}) != base
    assert key({}, {"tp_degree": 2}) != base
    assert key({"pad_token_id": 3}, {}) != base
    assert key({"pad_token_id": 3}, {}, fused=False) == key({}, {}, fused=False)


def test_paths_of_nested_configs_stay_out() -> None:
    lora = {"max_lora_rank": 16, "lora_ckpt_paths": {"a": "/somewhere"}}
    other = {**lora, "lora_ckpt_paths": {"a": "/elsewhere"}}
    assert spec_key(spec(neuron={"lora_config": lora})) == spec_key(
        spec(neuron={"lora_config": other})
    )


def test_order_of_fields_is_nothing() -> None:
    assert spec_key(dict(reversed(spec().items()))) == BASE


@pytest.mark.parametrize(
    "environment",
    [
        {"HOME": "/nonexistent", "TZ": "Asia/Tokyo", "LANG": "de_DE.UTF-8", "USER": "someone"},
        {"PYTHONHASHSEED": "1", "LC_ALL": "C", "HOSTNAME": "elsewhere"},
    ],
)
def test_nothing_of_the_machine_enters(environment: dict[str, str], tmp_path: Path) -> None:
    code = (
        "from tests.keys.test_spec import spec; from neuroncompile.keys import spec_key; "
        "print(spec_key(spec()))"
    )
    root = str(Path(__file__).parents[2])
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env={"PATH": "/usr/bin:/bin", "PYTHONPATH": root, **environment},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == BASE


def test_graph_specs_hold_no_bucket_lists() -> None:
    one = graph_spec(
        submodel="token_generation_model",
        region="layer",
        batch=1,
        bucket=64,
        cache_length=64,
        model={"hidden_size": 64},
        dtype="float32",
        target={"platform": "cpu"},
        toolchain={"torch": "2.13.0"},
        optlevel="1",
    )
    assert (one["kind"], one["backend"]) == ("graph", "cpu")
    assert not any("buckets" in name for name in one)


def test_pack_keys_follow_bytes_not_names() -> None:
    def key(**sources: str) -> str:
        spec = pack_spec(
            sources=sources, layout="hf-1", dtype="bfloat16", quantization=None, toolchain={}
        )
        return spec_key(spec)

    assert key(a="sha256:" + "1" * 64) == key(b="1" * 64)
    assert key(a="1" * 64) != key(a="2" * 64)


@pytest.mark.parametrize(
    ("left", "right", "same"),
    [
        ("-O1 --lnc=2", "--lnc=2   -O1", True),
        ("--lnc 2", "--lnc=2", True),
        ("-O1 --cache_dir=/a", "-O1 --cache_dir /b", True),
        ("-O1 --log_level=INFO --retry_failed_compilation --no_cache", "-O1", True),
        ("-O1 --verbose=35", "-O1 --verbose info", True),
        ("-O1", "", False),
        ("-O1 -O2", "-O2 -O1", False),
        ("--tensorizer-options='--a --b'", "--tensorizer-options='--b --a'", False),
        ("--tensorizer-options '--a --b'", "--tensorizer-options='--a --b'", True),
        ("-O 1", "-O1", True),
        ("-lnc 2", "--logical-nc-config=2", True),
        ("--optlevel=2 --lnc=1", "--lnc=1 -O2", True),
        ("-O1 --optlevel=2", "--optlevel=2 -O1", False),
        # Values stay with their options.
        ("-O 1 -j 4", "-O 4 -j 1", False),
        ("--a -5 --b -6", "--a -6 --b -5", False),
        ("--a '-x y' --b '-z y'", "--a '-z y' --b '-x y'", False),
    ],
)
def test_compiler_flags(left: str, right: str, same: bool) -> None:
    assert (compiler_flags(left) == compiler_flags(right)) is same


def test_flags_that_no_shell_could_read_are_refused() -> None:
    with pytest.raises(ConfigError, match="quotation"):
        compiler_flags("-O1 '--lnc=2")
