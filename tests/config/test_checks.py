from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from neuroncompile.config import NeuronConfig, Toolchain, check_config
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


def test_mha_without_key_value_heads(resolve: Resolve) -> None:
    model = {"model_type": "llama", "num_attention_heads": 12}
    assert check_config(resolve("tp_degree=4", model=model), model=model) == ()


def test_the_toolchains_windows_are_checked(resolve: Resolve, llama: dict[str, Any]) -> None:
    sdk = Toolchain("sdk", "nxdi", {"neuronx-distributed-inference": "0.9.17334"})
    with pytest.raises(ConfigError, match="trn2 and newer only"):
        check_config(resolve(target="trn1"), model=llama, toolchain=sdk)
    check_config(resolve(), model=llama, toolchain=sdk)
