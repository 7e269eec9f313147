"""`config show` and `config diff`, vLLM's names and the environment, as a user types them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Run

RECIPE = """
schema = 1
[model]
ref = "example/llama"
[model.facts]
architectures = ["LlamaForCausalLM"]
model_type = "llama"
dtype = "bfloat16"
hidden_size = 4096
intermediate_size = 14336
num_hidden_layers = 32
num_attention_heads = 32
num_key_value_heads = 8
vocab_size = 128256
max_position_embeddings = 8192
rms_norm_eps = 1e-5
[target]
platform = "trn2"
[toolchain]
sdk = "2.29"
[config]
tp_degree = 8
"""

Show = Callable[..., dict[str, Any]]


@pytest.fixture
def recipe(tmp_path: Path) -> str:
    path = tmp_path / "llama.toml"
    path.write_text(RECIPE)
    return str(path)


@pytest.fixture
def show(run: Run, recipe: str) -> Show:
    """The result of `config show`, its rows as name → (value, origin)."""

    def shown(*options: str, **env: str) -> dict[str, Any]:
        done = run("config", "show", recipe, *options, "--json", **env)
        assert done.code == 0, done.err
        assert done.document["command"] == "config show"
        result: dict[str, Any] = done.document["result"]
        result["rows"] = {row["name"]: (row["value"], row["origin"]) for row in result["config"]}
        result["warnings"] = done.document["warnings"]
        return result

    return shown


def test_every_value_has_an_origin(show: Show) -> None:
    rows = show("--batch-size=4", "--set", "on_device_sampling_config.top_k=1")["rows"]
    assert rows["batch_size"] == (4, "flag --batch-size")
    assert rows["tp_degree"] == (8, "recipe llama")
    assert rows["torch_dtype"] == ("bfloat16", "model")
    assert rows["seq_len"] == (4096, "default, min(max positions 8192, 4096)")
    assert rows["on_device_sampling_config.top_k"] == (1, "--set")


def test_changed_leaves_defaults_out(show: Show) -> None:
    rows = show("--changed")["rows"]
    assert set(rows) == {"tp_degree", "torch_dtype"}


def test_flags_sets_and_json_give_one_key(show: Show, tmp_path: Path) -> None:
    table = {"batch_size": 4, "on_device_sampling_config": {"dynamic": True}}
    (tmp_path / "o.json").write_text(json.dumps(table))
    keys = {
        show("--batch-size=4", "--set=on_device_sampling_config.dynamic=true")["key"],
        show("--set=batch_size=4", "--set=on_device_sampling_config.dynamic=true")["key"],
        show("--override-neuron-config", json.dumps(table))["key"],
        show("--override_neuron_config", f"@{tmp_path}/o.json")["key"],
    }
    assert len(keys) == 1


def test_a_nested_override_keeps_its_siblings(show: Show) -> None:
    first = '{"on_device_sampling_config": {"dynamic": true, "global_topk": 64}}'
    rows = show(
        "--override-neuron-config", first, "--set=on_device_sampling_config.global_topk=32"
    )["rows"]
    assert rows["on_device_sampling_config.dynamic"] == (True, "--override-neuron-config")
    assert rows["on_device_sampling_config.global_topk"] == (32, "--set")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"batch_size": "4"}', "batch_size is '4'"),
        ('{"seqlen": 4096}', "seqlen is no keyword"),
        ('{"context_encoding_buckets": "128, ,512"}', "context_encoding_buckets"),
        ("[1]", "it must be an object"),
        ("{", "no JSON"),
        ("@/nowhere.json", "cannot be read"),
    ],
)
def test_a_wrong_override_is_exit_5(run: Run, recipe: str, text: str, message: str) -> None:
    done = run("config", "show", recipe, "--override-neuron-config", text)
    assert done.code == 5
    assert message in done.err


def test_vllm_defaults_stand_below_recipe_and_flags(show: Show) -> None:
    shown = show("--vllm", "--max-num-seqs=16")
    rows = shown["rows"]
    assert rows["batch_size"] == (16, "flag --max-num-seqs")
    assert rows["seq_len"] == (8192, "vLLM default, the model's 8192 positions")
    assert rows["tp_degree"] == (8, "recipe llama")
    assert rows["sequence_parallel_enabled"] == (True, "vLLM default")
    assert rows["on_device_sampling_config.dynamic"] == (True, "vLLM default")
    assert any("float32" in warning for warning in shown["warnings"])


def test_without_it_the_defaults_are_ours(show: Show) -> None:
    rows = show()["rows"]
    assert rows["batch_size"] == (1, "default")
    assert "sequence_parallel_enabled" not in rows


def test_a_program_variable_enters_the_key(show: Show) -> None:
    plain, set_ = show(), show(NEURON_FUSE_SOFTMAX="1")
    assert set_["compiler"]["env"] == {"NEURON_FUSE_SOFTMAX": "1"}
    assert set_["compiler_origins"] == {
        "NEURON_FUSE_SOFTMAX": "environment NEURON_FUSE_SOFTMAX",
    }
    assert set_["key"] != plain["key"]


def test_flags_of_the_compiler_count_however_they_are_spelt(show: Show) -> None:
    plain = show()["key"]
    one = show(NEURON_CC_FLAGS="-O1 --auto-cast none")["key"]
    assert one != plain
    assert one == show(NEURON_CC_FLAGS="  --auto-cast=none   -O1")["key"]
    assert plain == show(NEURON_CC_FLAGS="--cache_dir=/x --log_level INFO")["key"]
    assert plain == show(NEURON_CC_FLAGS="--retry_failed_compilation")["key"]


def test_a_variable_nobody_knows_is_exit_5_for_neuron_only(run: Run, recipe: str) -> None:
    done = run("config", "show", recipe, NXD_NEW_THING="1")
    assert done.code == 5
    assert "NXD_NEW_THING" in done.err
    assert run("config", "show", recipe, "--target=cpu", "--tp=1", NXD_NEW_THING="1").code == 0


def test_diff_tells_what_changes_the_key(run: Run, recipe: str, tmp_path: Path) -> None:
    other = tmp_path / "other.toml"
    text = RECIPE.replace("tp_degree = 8", "tp_degree = 16\nskip_warmup = true")
    other.write_text(text.replace("rms_norm_eps", "bos_token_id = 7\nrms_norm_eps"))
    result = run("config", "diff", recipe, str(other), "--json").document["result"]
    assert not result["same_key"]
    told = {row["field"]: row["changes_key"] for row in result["differences"]}
    assert told == {
        "neuron.tp_degree": True,
        "neuron.skip_warmup": False,
        "model.bos_token_id": False,
    }
    [warmup] = [row for row in result["differences"] if row["field"] == "neuron.skip_warmup"]
    assert warmup["reason"]
    assert warmup["proof"]
    shown = run("config", "diff", recipe, str(other)).out
    assert "no: starts a sequence on the host" in shown


def test_diff_with_an_artifact_and_its_spec(
    run: Run, llama: Path, store_root: Path, built_key: str, tmp_path: Path
) -> None:
    where = ("--store", str(store_root))
    spec = run("store", "show", built_key, *where, "--json").out
    (tmp_path / "spec.json").write_text(spec)
    one = run("config", "diff", built_key[:12], f"{tmp_path}/spec.json", *where, "--json")
    assert one.document["result"]["same_key"], one.err
    result = run("config", "diff", built_key, str(llama), *where, "--json").document["result"]
    told = {row["field"] for row in result["differences"] if not row["follows"]}
    assert "neuron.seq_len" in told
    assert result["left"]["key"] == built_key


def test_a_file_that_is_no_spec_is_exit_5(run: Run, recipe: str, tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text("{}")
    done = run("config", "diff", recipe, f"{tmp_path}/x.json")
    assert done.code == 5
    assert "neuroncompile store show" in done.err


def test_tables_fit_80_columns_and_lose_nothing(run: Run, recipe: str) -> None:
    buckets = ",".join(str(n) for n in range(128, 4097, 128))
    option = f"--context-encoding-buckets={buckets}"
    env = {"NEURON_CC_FLAGS": " ".join(f"--option-{n}=value" for n in range(9))}
    for args in (
        ("show", recipe, option),
        ("diff", recipe, "llama-3.3-70b-trn2"),
    ):
        shown = run("config", *args, **env)
        assert shown.code == 0, shown.err
        wide = [line for line in shown.out.splitlines() if len(line) > 80]
        assert not [line for line in wide if recipe not in line], wide
    text = "".join(run("config", "show", recipe, option, **env).out.split())
    assert all(f"{n}," in text for n in range(128, 4096, 128))
    assert all(f"--option-{n}=value" in text for n in range(9))


def test_what_a_stored_spec_does_not_hold_is_not_called_a_difference(
    run: Run, recipe: str, tmp_path: Path
) -> None:
    other = tmp_path / "other.toml"
    other.write_text(RECIPE.replace("tp_degree = 8", "tp_degree = 8\nskip_warmup = true"))
    planned = run("build", str(other), "--dry-run", "--json")
    (tmp_path / "spec.json").write_text(planned.out)
    done = run("config", "diff", recipe, f"{tmp_path}/spec.json", "--json")
    assert done.document["result"]["same_key"]
    assert done.document["result"]["differences"] == []
    planned_too = run("config", "diff", recipe, str(other), "--json").document["result"]
    assert [row["field"] for row in planned_too["differences"]] == ["neuron.skip_warmup"]


def test_a_field_is_told_once_where_one_side_is_fused(
    run: Run, recipe: str, tmp_path: Path
) -> None:
    facts = "pad_token_id = 3\nrms_norm_eps"
    fused = "tp_degree = 8\nenable_fused_speculation = true\nspeculation_length = 4"
    fused += "\non_device_sampling_config = {top_k = 1}"
    one, two = tmp_path / "one.toml", tmp_path / "two.toml"
    one.write_text(RECIPE.replace("rms_norm_eps", facts))
    two.write_text(one.read_text().replace("tp_degree = 8", fused).replace("= 3", "= 5", 1))
    done = run("config", "diff", str(one), str(two), "--json")
    assert done.code == 0, done.err
    rows = done.document["result"]["differences"]
    assert [r["changes_key"] for r in rows if r["field"] == "model.pad_token_id"] == [True]


def test_options_for_two_finished_specs_are_refused(run: Run, recipe: str, tmp_path: Path) -> None:
    path = tmp_path / "spec.json"
    path.write_text(run("build", recipe, "--dry-run", "--json").out)
    done = run("config", "diff", str(path), str(path), "--batch-size=4")
    assert done.code == 2
    assert "change nothing" in done.err
    assert run("config", "diff", str(path), str(path)).code == 0
    assert run("config", "diff", recipe, str(path), "--batch-size=4").code == 0


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"kind": "graph", "model": {}, "neuron": {}, "target": {}}', "of kind 'graph'"),
        ('{"kind": "compile", "neuron": {}}', "no `model` table"),
        ("[]", "no `model` table"),
        ("{", "is no spec"),
    ],
)
def test_other_documents_are_no_programs(
    run: Run, recipe: str, tmp_path: Path, text: str, message: str
) -> None:
    (tmp_path / "x.json").write_text(text)
    done = run("config", "diff", recipe, f"{tmp_path}/x.json")
    assert done.code == 5
    assert message in done.err


def test_a_dry_run_names_what_the_compiler_is_given(run: Run, recipe: str) -> None:
    env = {"NEURON_CC_FLAGS": "--lnc=2 -O1", "NEURON_FUSE_SOFTMAX": "1"}
    rows = run("build", recipe, "--dry-run", "--json", **env).document["result"]["compiler"]
    assert rows == [
        {"name": "args", "value": "--lnc=2 -O1", "origin": "environment NEURON_CC_FLAGS"},
        {"name": "NEURON_FUSE_SOFTMAX", "value": "1", "origin": "environment NEURON_FUSE_SOFTMAX"},
    ]
    shown = run("build", recipe, "--dry-run", **env).out
    assert "compiler   --lnc=2 -O1  (environment NEURON_CC_FLAGS)" in shown
    assert "compiler   NEURON_FUSE_SOFTMAX=1  (environment NEURON_FUSE_SOFTMAX)" in shown
    assert run("build", recipe, "--dry-run", "--json").document["result"]["compiler"] == []


def test_names_of_vllms_imply_its_defaults(show: Show) -> None:
    base = show("--vllm")["key"]
    assert show("--max-num-seqs=32")["key"] == base
    assert show("--max-model-len=8192")["key"] == base
    rows = show("--max-model-len=2048")["rows"]
    assert rows["seq_len"] == (2048, "flag --max-model-len")
    assert rows["batch_size"] == (32, "vLLM default")
    speculating = show("--num-speculative-tokens=4")["rows"]
    assert speculating["speculation_length"] == (4, "flag --num-speculative-tokens")
    assert "sequence_parallel_enabled" not in speculating


def test_names_of_ours_do_not(show: Show) -> None:
    rows = show("--batch-size=4", "--seq-len=2048", "--tensor-parallel-size=8")["rows"]
    assert "sequence_parallel_enabled" not in rows
    assert rows["is_continuous_batching"][1].startswith("default")


def test_two_names_of_one_value_must_agree(run: Run, recipe: str, show: Show) -> None:
    done = run("config", "show", recipe, "--batch-size=4", "--max-num-seqs=8")
    assert done.code == 2
    assert "--batch-size 4 and --max-num-seqs 8" in done.err
    assert show("--batch-size=8", "--max-num-seqs=8")["rows"]["batch_size"][0] == 8
