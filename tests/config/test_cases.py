"""Mistakes that people made with other tools, and what is said about them here.

The names are of a catalogue of such cases; each test states the behaviour asked for there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from neuroncompile.config import NeuronConfig, Toolchain, check_config
from neuroncompile.config.releases import sdk_packages
from neuroncompile.errors import ConfigError
from neuroncompile.keys import compile_spec, spec_key

Resolve = Callable[..., NeuronConfig]
SMOLLM = {"model_type": "llama", "num_attention_heads": 9, "num_key_value_heads": 3}


def key_of(config: NeuronConfig, model: Mapping[str, Any] | None = None) -> str:
    return spec_key(
        compile_spec(
            backend="nxdi",
            model=model or {"model_type": "llama"},
            neuron=config.plain(),
            compiler={"args": [], "env": {}},
            optlevel=None,
            target=config.target.spec(),
            toolchain={},
        )
    )


# B01: a misspelt override is an error with the name it was meant to be, not a log line.


@pytest.mark.parametrize("target", ["cpu:x86-64-v3", "trn1", "trn2", "inf2"])
def test_b01_a_misspelt_keyword(resolve: Resolve, target: str) -> None:
    with pytest.raises(ConfigError) as caught:
        resolve("seqlen=4096", target=target)
    assert caught.value.field == "seqlen"
    assert caught.value.hint == "did you mean seq_len?"
    assert caught.value.exit_code == 5


def test_b01_a_misspelt_nested_keyword(resolve: Resolve) -> None:
    with pytest.raises(ConfigError) as caught:
        resolve("on_device_sampling_config.topk=1", target="trn2")
    assert caught.value.field == "on_device_sampling_config.topk"
    assert caught.value.hint == "did you mean on_device_sampling_config.top_k?"


def test_b01_on_purpose_it_passes_and_is_hashed(resolve: Resolve) -> None:
    keys = {
        key_of(resolve(*sets, target="trn2", allow_unknown=True))
        for sets in ((), ("seqlen=1",), ("seqlen=2",), ("on_device_sampling_config.topk=1",))
    }
    assert len(keys) == 4


# B02: a number of cores that only the runtime knows to be impossible.


def test_b02_24_ranks_on_trn1(resolve: Resolve) -> None:
    model = {"model_type": "llama", "num_attention_heads": 24, "num_key_value_heads": 24}
    with pytest.raises(ConfigError) as caught:
        check_config(resolve("tp_degree=24", target="trn1", model=model), model=model)
    assert caught.value.field == "tp_degree"
    assert caught.value.value == 24
    assert caught.value.legal == [1, 2, 8, 16, 32]
    assert "1, 2, 8, 16, 32" in str(caught.value)
    assert check_config(resolve("tp_degree=24", target="inf2", model=model), model=model) == ()


# B03: heads that the ranks do not divide are padded only by consent, and said once.


def test_b03_padding_by_consent(resolve: Resolve) -> None:
    config = resolve("tp_degree=2", target="trn2", model=SMOLLM)
    with pytest.raises(ConfigError) as caught:
        check_config(config, model=SMOLLM)
    assert "--allow-head-padding" in str(caught.value.hint)
    lines = check_config(config, model=SMOLLM, allow_head_padding=True)
    assert [line for line in lines if "heads" in line] == [
        "attention heads kv 3→10, q 9→10 at tp=2"
    ]
    assert check_config(resolve(target="trn2", model=SMOLLM), model=SMOLLM) == ()


@pytest.mark.parametrize("degree", [1, 2, 4, 8])
def test_b03_nothing_changes_nothing_is_said(
    resolve: Resolve, llama: dict[str, Any], degree: int
) -> None:
    assert check_config(resolve(f"tp_degree={degree}", target="trn2"), model=llama) == ()


# B04: the length is chosen in the open.


@pytest.mark.parametrize(("positions", "length"), [(8192, 4096), (2048, 2048), (131072, 4096)])
def test_b04_the_default_length_has_a_reason_and_is_in_the_key(
    resolve: Resolve, positions: int, length: int
) -> None:
    model = {"model_type": "llama", "max_position_embeddings": positions}
    config = resolve(model=model)
    assert config["seq_len"] == length
    assert str(positions) in config.origin("seq_len")
    assert key_of(config) == key_of(resolve(f"seq_len={length}", model=model))
    assert key_of(config) != key_of(resolve(f"seq_len={length // 2}", model=model))


@pytest.mark.parametrize("value", ["-1", "0", "null", "4k", '"4096"', "1e3", "4096.0", "[4096]"])
def test_b04_no_length_is_guessed_from_nonsense(resolve: Resolve, value: str) -> None:
    with pytest.raises(ConfigError) as caught:
        resolve(f"seq_len={value}")
    assert caught.value.field == "seq_len"


# B06: overrides merge leaf by leaf, and have types.


def test_b06_a_nested_override_keeps_its_siblings(resolve: Resolve) -> None:
    recipe = {"on_device_sampling_config": {"do_sample": True, "top_k": 50, "top_p": 0.9}}
    config = resolve("on_device_sampling_config.top_k=1", config=recipe, target="trn2")
    assert config["on_device_sampling_config"] == {"do_sample": True, "top_k": 1, "top_p": 0.9}


@pytest.mark.parametrize(
    ("right", "wrong", "field"),
    [
        ("batch_size=4", 'batch_size="4"', "batch_size"),
        ("enable_bucketing=true", 'enable_bucketing="true"', "enable_bucketing"),
        ("token_generation_buckets=[128,4096]", 'token_generation_buckets="128-512"',
         "token_generation_buckets"),
        ("on_device_sampling_config.top_k=1", 'on_device_sampling_config.top_k="1"',
         "on_device_sampling_config.top_k"),
    ],
)  # fmt: skip
def test_b06_text_is_no_number(resolve: Resolve, right: str, wrong: str, field: str) -> None:
    resolve(right, target="trn2")
    with pytest.raises(ConfigError) as caught:
        resolve(wrong, target="trn2")
    assert caught.value.field == field


def test_b06_recipe_flag_and_set_say_the_same(resolve: Resolve) -> None:
    by_recipe = resolve(config={"batch_size": 4, "token_generation_buckets": [128, 4096]})
    by_flag = resolve(
        flags={"batch_size": ("--batch-size", 4), "token_generation_buckets": ("-b", [128, 4096])}
    )
    by_set = resolve("batch_size=4", "token_generation_buckets=[128,4096]")
    by_comma = resolve("batch_size=4", "token_generation_buckets=128,4096")
    assert len({key_of(config) for config in (by_recipe, by_flag, by_set, by_comma)}) == 1


# B14: speculation that compiles on one target and crashes on another.


@pytest.mark.parametrize(
    ("target", "sets", "said"),
    [
        ("trn2", ["batch_size=4"], "batch_size 4"),
        ("trn1", [], "target trn1"),
        ("trn2", ["sequence_parallel_enabled=true"], "sequence_parallel_enabled"),
    ],
)
def test_b14_untested_before_compiling(
    resolve: Resolve, llama: dict[str, Any], target: str, sets: list[str], said: str
) -> None:
    config = resolve("speculation_length=5", *sets, target=target)
    (warning,) = check_config(config, model=llama)
    assert "untested" in warning
    assert said in warning


@pytest.mark.parametrize(
    ("sets", "field"),
    [
        (["chunked_prefill_config.max_num_seqs=4", "is_block_kv_layout=true"],
         "chunked_prefill_config"),
        (["token_generation_batches=[1]"], "token_generation_batches"),
        (["is_medusa=true", "num_medusa_heads=1", "medusa_tree=[[0]]",
          "medusa_speculation_length=2", "on_device_sampling_config.top_k=1"], "is_medusa"),
    ],
)  # fmt: skip
def test_b14_rejected_before_compiling(
    resolve: Resolve, llama: dict[str, Any], sets: list[str], field: str
) -> None:
    config = resolve("speculation_length=5", *sets, target="trn2")
    with pytest.raises(ConfigError) as caught:
        check_config(config, model=llama)
    assert caught.value.field == field


# B23: adapters; which ones is not the program's business, what they need is.


def test_b23_shape_is_in_the_key_and_weights_are_not(resolve: Resolve) -> None:
    lora = {"max_lora_rank": 16, "max_loras": 2, "target_modules": ["q_proj"]}

    def key(**change: Any) -> str:
        return key_of(resolve(config={"lora_config": lora | change}, target="trn2"))

    assert key(lora_ckpt_paths=["a:/one"]) == key(lora_ckpt_paths=["b:/two"]) == key()
    changes: list[dict[str, Any]] = [
        {"max_lora_rank": 32},
        {"max_loras": 3},
        {"target_modules": ["v_proj"]},
    ]
    assert len({key(**change) for change in (*changes, {})}) == 4


def test_b23_more_adapters_than_places(resolve: Resolve, llama: dict[str, Any]) -> None:
    paths = {"lora_config": {"lora_ckpt_paths": ["a:/one", "b:/two"], "max_loras": 1}}
    with pytest.raises(ConfigError) as caught:
        check_config(resolve(config=paths, target="trn2"), model=llama)
    assert caught.value.field == "lora_config.max_loras"
    assert caught.value.legal == ">= 2"


# F14: a dtype in each of its spellings.


def test_f14_spellings_of_one_dtype(resolve: Resolve) -> None:
    spelt = resolve("torch_dtype=bfloat16")
    derived = [
        resolve("torch_dtype=auto"),
        resolve("torch_dtype=null"),
        resolve(),
        resolve("torch_dtype=torch.bfloat16"),
    ]
    assert {key_of(config) for config in derived} == {key_of(spelt)}
    assert resolve("torch_dtype=auto", dtype="float32")["torch_dtype"] == "float32"
    assert resolve("torch_dtype=torch.float16")["torch_dtype"] == "float16"


@pytest.mark.parametrize("target", ["cpu:x86-64-v3", "trn1", "trn2", "trn3"])
def test_f14_fp8_is_no_dtype_of_everything(
    resolve: Resolve, llama: dict[str, Any], target: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        check_config(resolve("torch_dtype=float8_e4m3fn", target=target), model=llama)
    assert caught.value.field == "torch_dtype"
    assert caught.value.legal == ["float32", "bfloat16", "float16"]


# F18: overrides as people type them.


@pytest.mark.parametrize(
    ("sets", "field", "hint"),
    [
        (["seqlen=4096"], "seqlen", "did you mean seq_len?"),
        (['batch_size="4"'], "batch_size", "without quotes"),
        (["token_generation_buckets=128, ,512"], "token_generation_buckets", "128,512"),
        (["tp_degree=24"], "tp_degree", "1, 2, 8, 16, 32"),
        (
            ["seq_len=100", "is_block_kv_layout=true", "pa_block_size=32"],
            "seq_len",
            "set seq_len to 128",
        ),
    ],
)
def test_f18_refused(
    resolve: Resolve, llama: dict[str, Any], sets: list[str], field: str, hint: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        check_config(resolve(*sets, target="trn1"), model=llama)
    assert caught.value.field == field
    assert hint in str(caught.value.hint)


def test_f18_buckets_in_any_order_are_one_key(resolve: Resolve) -> None:
    backwards = resolve("token_generation_buckets=[2048,128]", "seq_len=2048")
    assert backwards["token_generation_buckets"] == [128, 2048]
    forwards = resolve("token_generation_buckets=[128,2048]", "seq_len=2048")
    assert key_of(backwards) == key_of(forwards)


def test_f18_only_one_of_the_sampling_values(resolve: Resolve) -> None:
    config = resolve("on_device_sampling_config.top_k=1", target="trn2")
    assert config["on_device_sampling_config"] == {"top_k": 1}


# The windows of the releases.


def test_trn1_with_sdk_2_29_is_refused_with_the_pin(
    resolve: Resolve, llama: dict[str, Any]
) -> None:
    sdk = Toolchain("sdk-2.29", "nxdi", sdk_packages("2.29"))
    with pytest.raises(ConfigError) as caught:
        check_config(resolve("tp_degree=8", target="trn1"), model=llama, toolchain=sdk)
    assert caught.value.field == "target"
    assert "sdk-2.28" in str(caught.value.hint)
