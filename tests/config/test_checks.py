from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from neuroncompile.config import NeuronConfig, Toolchain, check_config
from neuroncompile.config.checks import UNUSED
from neuroncompile.config.schema import CLASSES
from neuroncompile.errors import ConfigError

Resolve = Callable[..., NeuronConfig]
CPU = "cpu:x86-64-v3"


@pytest.mark.parametrize(
    ("target", "sets", "field", "said", "legal"),
    [
        (CPU, ["seq_len=8193"], "seq_len", ["8193", "8192"], "1 to 8192"),
        (CPU, ["max_length=9000"], "max_length", ["9000", "8192"], "1 to 8192"),
        (
            CPU,
            ["seq_len=1024", "max_context_length=2048"],
            "max_context_length",
            ["2048", "1024"],
            "1 to 1024",
        ),
        (
            CPU,
            ["seq_len=1024", "context_encoding_buckets=[128,2048]"],
            "context_encoding_buckets",
            ["2048", "1024"],
            "1 to 1024",
        ),
        (
            CPU,
            ["seq_len=1024", "token_generation_buckets=[4096]"],
            "token_generation_buckets",
            ["4096", "1024"],
            "1 to 1024",
        ),
        (
            CPU,
            ["context_encoding_buckets=[128,128,4096]"],
            "context_encoding_buckets",
            ["twice"],
            "each bucket once",
        ),
        (
            CPU,
            ["enable_bucketing=false", "context_encoding_buckets=[128,4096]"],
            "context_encoding_buckets",
            ["ignores"],
            "unset",
        ),
        (CPU, ["batch_size=4", "ctx_batch_size=2"], "ctx_batch_size", ["one prompt"], 1),
        (CPU, ["ctx_batch_size=2"], "ctx_batch_size", ["batch_size"], "1 to 1"),
        (
            CPU,
            ["batch_size=4", "token_generation_batches=[1,8]"],
            "token_generation_batches",
            ["8", "4"],
            "1 to 4",
        ),
        (
            CPU,
            ["seq_len=100", "is_block_kv_layout=true", "pa_block_size=32"],
            "seq_len",
            ["100", "32"],
            "multiples of 32",
        ),
        (
            CPU,
            ["torch_dtype=float8_e4m3fn"],
            "torch_dtype",
            ["float8_e4m3fn"],
            ["float32", "bfloat16", "float16"],
        ),
        (
            "trn2",
            ["torch_dtype=float8_e5m2"],
            "torch_dtype",
            ["float8_e5m2"],
            ["float32", "bfloat16", "float16"],
        ),
        ("trn1", ["tp_degree=24"], "tp_degree", ["24", "1, 2, 8, 16, 32"], [1, 2, 8, 16, 32]),
        ("inf2", ["tp_degree=16"], "tp_degree", ["1, 2, 4, 8, 24"], [1, 2, 4, 8, 24]),
        ("trn1.2xlarge", ["tp_degree=8"], "tp_degree", ["trn1.2xlarge", "1, 2"], [1, 2]),
        ("trn1.32xlarge", ["tp_degree=64"], "tp_degree", ["64"], [1, 2, 8, 16, 32]),
        ("trn2", ["tp_degree=3"], "tp_degree", ["3"], [1, 2, 4, 8, 16, 32, 64]),
        ("trn2.3xlarge", ["tp_degree=4", "pp_degree=2"], "pp_degree", ["8 cores", "has 4"], None),
        (CPU, ["tp_degree=4", "cp_degree=3"], "tp_degree", ["cp_degree 3"], "multiples of 3"),
        (CPU, ["tp_degree=3"], "tp_degree", ["q 32→33", "kv 8→33"], [1, 2, 4, 8, 16, 32]),
        ("trn2", ["tp_degree=64"], "tp_degree", ["q 32→64"], [1, 2, 4, 8, 16, 32]),
    ],
)
def test_refusals(
    resolve: Resolve,
    llama: dict[str, Any],
    target: str,
    sets: list[str],
    field: str,
    said: list[str],
    legal: Any,
) -> None:
    config = resolve(*sets, target=target)
    with pytest.raises(ConfigError) as caught:
        check_config(config, model=llama)
    error = caught.value
    assert error.exit_code == 5
    assert error.field == field
    assert error.value == config[field]
    assert error.hint
    assert error.legal if legal is None else error.legal == legal
    for words in said:
        assert words in str(error)


@pytest.mark.parametrize(
    ("target", "sets"),
    [
        (CPU, []),
        (CPU, ["seq_len=8192"]),
        (CPU, ["batch_size=8", "tp_degree=4"]),
        (CPU, ["torch_dtype=float16"]),
        (CPU, ["batch_size=4", "is_continuous_batching=false", "ctx_batch_size=4"]),
        ("trn1", ["tp_degree=32"]),
        ("trn2", ["tp_degree=8", "logical_nc_config=1"]),
        ("trn2.48xlarge", ["tp_degree=32"]),
    ],
)
def test_what_runs(resolve: Resolve, llama: dict[str, Any], target: str, sets: list[str]) -> None:
    check_config(resolve(*sets, target=target), model=llama)


def test_the_model_with_24_heads_runs_on_24_cores_of_inf2(resolve: Resolve) -> None:
    model = {"model_type": "llama", "num_attention_heads": 24, "num_key_value_heads": 24}
    check_config(resolve("tp_degree=24", target="inf2", model=model), model=model)


def test_whole_nodes_of_trn1(resolve: Resolve) -> None:
    model = {"model_type": "llama", "num_attention_heads": 64, "num_key_value_heads": 64}
    check_config(resolve("tp_degree=64", target="trn1", model=model), model=model)
    with pytest.raises(ConfigError, match="multiple of 32"):
        check_config(resolve("tp_degree=48", target="trn1", model=model), model=model)


def test_padding_needs_consent_and_is_said_once(resolve: Resolve) -> None:
    model = {"model_type": "llama", "num_attention_heads": 9, "num_key_value_heads": 3}
    config = resolve("tp_degree=2", model=model)
    with pytest.raises(ConfigError, match="9 attention heads") as caught:
        check_config(config, model=model)
    assert "--allow-head-padding" in str(caught.value.hint)
    warnings = check_config(config, model=model, allow_head_padding=True)
    assert warnings == ("attention heads kv 3→10, q 9→10 at tp=2",)
    assert check_config(resolve(model=model), model=model) == ()


def test_replication_is_said_and_needs_no_consent(resolve: Resolve, llama: dict[str, Any]) -> None:
    assert check_config(resolve("tp_degree=16"), model=llama) == (
        "attention heads kv 8→16 at tp=16",
    )


def test_buckets_that_end_early_are_a_warning(resolve: Resolve, llama: dict[str, Any]) -> None:
    config = resolve("seq_len=2048", "context_encoding_buckets=[128,512]")
    (warning,) = check_config(config, model=llama)
    assert "512" in warning
    assert "2048" in warning


@pytest.mark.parametrize(
    ("own", "asked", "warned"),
    [("bfloat16", "float16", True), ("float16", "float16", False), ("float32", "bfloat16", False)],
)
def test_a_narrower_exponent_is_a_warning(
    resolve: Resolve, llama: dict[str, Any], own: str, asked: str, warned: bool
) -> None:
    config = resolve(f"torch_dtype={asked}", dtype=own)
    assert bool(check_config(config, model=llama | {"dtype": own})) == warned


@pytest.mark.parametrize("target", [CPU, "trn2"])
def test_the_dtype_that_is_compiled_is_the_one_that_is_said(
    resolve: Resolve, llama: dict[str, Any], target: str
) -> None:
    sets = ["torch_dtype=float32", "overrides_torch_dtype=false"]
    model = llama | {"dtype": "bfloat16"}
    with pytest.raises(ConfigError, match="bfloat16 would take the place") as caught:
        check_config(resolve(*sets, target=target), model=model)
    assert caught.value.field == "overrides_torch_dtype"
    check_config(resolve(*sets, target=target), model=llama | {"dtype": "float32"})


def test_an_answer_longer_than_the_program(resolve: Resolve, llama: dict[str, Any]) -> None:
    for value in (4096, 5000, 0):
        with pytest.raises(ConfigError) as caught:
            check_config(resolve(f"max_new_tokens={value}", "seq_len=4096"), model=llama)
        assert caught.value.field == "max_new_tokens"
        assert caught.value.legal == "1 to 4095"
    check_config(resolve("max_new_tokens=4095", "seq_len=4096"), model=llama)


def test_unused_keywords_are_the_schemas() -> None:
    rows = [row for rows in CLASSES.values() for row in rows]
    assert set(UNUSED) == {row[0] for row in rows if row[3] == "unused"}


@pytest.mark.parametrize("name", ["n_positions", "n_active_tokens"])
@pytest.mark.parametrize("target", [CPU, "trn2"])
def test_what_changes_nothing_but_the_key_is_said(
    resolve: Resolve, llama: dict[str, Any], name: str, target: str
) -> None:
    (warning,) = check_config(resolve(f"{name}=64", target=target), model=llama)
    assert name in warning
    assert "nothing but the key" in warning


def test_an_empty_table_is_not_the_same_as_none(resolve: Resolve) -> None:
    """NxDI samples on the device with `{}`, and on the host without it."""
    asked = resolve("on_device_sampling_config={}", target="trn2")
    assert asked["on_device_sampling_config"] == {}
    assert asked.origin("on_device_sampling_config") == "--set"
    assert "on_device_sampling_config" not in resolve(target="trn2")
    filled = resolve(
        "on_device_sampling_config={}", "on_device_sampling_config.top_k=1", target="trn2"
    )
    assert filled["on_device_sampling_config"] == {"top_k": 1}
    withdrawn = resolve(
        "on_device_sampling_config={}", "on_device_sampling_config=null", target="trn2"
    )
    assert "on_device_sampling_config" not in withdrawn


def test_mha_without_key_value_heads(resolve: Resolve) -> None:
    model = {"model_type": "llama", "num_attention_heads": 12}
    assert check_config(resolve("tp_degree=4", model=model), model=model) == ()


def test_the_toolchains_windows_are_checked(resolve: Resolve, llama: dict[str, Any]) -> None:
    sdk = Toolchain("sdk", "nxdi", {"neuronx-distributed-inference": "0.9.17334"})
    with pytest.raises(ConfigError, match="trn2 and newer only"):
        check_config(resolve(target="trn1"), model=llama, toolchain=sdk)
    check_config(resolve(), model=llama, toolchain=sdk)
