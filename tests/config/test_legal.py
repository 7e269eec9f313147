from __future__ import annotations

from typing import Any

import pytest

from neuroncompile.config.legal import coerce
from neuroncompile.config.schema import CLASSES, fields_of
from neuroncompile.errors import ConfigError

FIELDS = fields_of(None)
SAMPLING = {row[0]: row for row in CLASSES["OnDeviceSamplingConfig"]}
LORA = {row[0]: row for row in CLASSES["LoraServingConfig"]}


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("batch_size", 4, 4),
        ("fused_qkv", True, True),
        ("torch_dtype", "bfloat16", "bfloat16"),
        ("context_encoding_buckets", [2048, 128], [128, 2048]),  # as NxDI sorts them in place
        ("context_encoding_buckets", [[256, 4], [128, 8]], [[128, 8], [256, 4]]),
        ("token_generation_batches", 2, [2]),
        ("token_generation_batches", [4, 1], [1, 4]),
        ("quantize_clamp_bound", 5, 5.0),
        ("max_context_length", None, None),
        ("attn_kernel_enabled", None, None),
        ("modules_to_not_convert", ["lm_head"], ["lm_head"]),
        ("dma_order_config", {"a": 1}, {"a": 1}),
    ],
)
def test_legal_values(name: str, value: Any, expected: Any) -> None:
    found = coerce(FIELDS[name], value, path=name, origin="--set")
    assert found == expected
    assert type(found) is type(expected)


@pytest.mark.parametrize(
    ("name", "value", "hint"),
    [
        ("batch_size", "4", "batch_size=4 without quotes"),
        ("batch_size", True, "whole number"),
        ("batch_size", 4.0, "whole number"),
        ("batch_size", 0, "1 or more"),
        ("batch_size", None, "whole number"),
        ("seq_len", -1, "1 or more"),
        ("seq_len", "None", "for its default"),
        ("fused_qkv", "true", "write true"),
        ("fused_qkv", "True", "write true"),
        ("fused_qkv", 1, "true or false"),
        ("fused_qkv", None, "true or false"),
        ("torch_dtype", "bf16", "bfloat16"),
        ("torch_dtype", 16, "bfloat16"),
        ("cast_type", "fp32", "as-declared"),
        ("logical_nc_config", 3, "1, 2"),
        ("context_encoding_buckets", [], "derive"),
        ("context_encoding_buckets", [0, 128], "1 or more"),
        ("context_encoding_buckets", [128, "512"], "list"),
        ("context_encoding_buckets", "128,512", "list"),  # a recipe's text is no list
        ("modules_to_not_convert", [1], "list of texts"),
        ("dma_order_config", 3, "table"),
    ],
)
def test_refused_values_name_field_value_and_legal(name: str, value: Any, hint: str) -> None:
    with pytest.raises(ConfigError) as caught:
        coerce(FIELDS[name], value, path=name, origin="recipe r")
    error = caught.value
    assert (error.field, error.value) == (name, value)
    assert error.legal
    assert "recipe r" in str(error)
    assert hint in f"{error} {error.hint}"


@pytest.mark.parametrize(
    ("text", "expected"), [("128,512", [128, 512]), ("128, 512", [128, 512]), ("512", [512])]
)
def test_a_shells_list(text: str, expected: list[int]) -> None:
    row = FIELDS["context_encoding_buckets"]
    assert coerce(row, text, path=row[0], origin="--set", text=True) == expected


@pytest.mark.parametrize("text", ["128, ,512", "128,", "a,b", "", "128;512", "-1,2"])
def test_a_shells_broken_list(text: str) -> None:
    row = FIELDS["context_encoding_buckets"]
    with pytest.raises(ConfigError) as caught:
        coerce(row, text, path=row[0], origin="--set", text=True)
    assert caught.value.field == "context_encoding_buckets"


def test_nested_rows() -> None:
    assert coerce(SAMPLING["temperature"], 1, path="t", origin="o") == 1.0
    assert coerce(SAMPLING["top_k"], -1, path="k", origin="o") == -1
    with pytest.raises(ConfigError):
        coerce(SAMPLING["top_k"], -2, path="k", origin="o")
    paths: Any = {"a": "/x"}
    assert coerce(LORA["lora_ckpt_paths"], paths, path="p", origin="o") == paths
    assert coerce(LORA["lora_ckpt_paths"], ["a : /x"], path="p", origin="o") == ["a : /x"]
