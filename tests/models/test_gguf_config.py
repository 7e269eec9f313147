"""Configs from GGUF headers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from neuroncompile.errors import ConfigError, ModelError
from neuroncompile.models.architecture import eos_token_ids, shape_of
from neuroncompile.models.gguf_config import config_of, generation_config_of
from neuroncompile.models.gguf_header import read_gguf
from tests.models.ggufs import FEED, HEADS, HIDDEN, KV_HEADS, LAYERS, TOKENS, write_gguf


def config(path: Path) -> dict[str, Any]:
    return config_of(read_gguf(path), path)


@pytest.mark.parametrize(("arch", "head_dim"), [("llama", 16), ("qwen2", 16), ("qwen3", 32)])
def test_sizes(arch: str, head_dim: int, tmp_path: Path) -> None:
    shape = shape_of(config(write_gguf(tmp_path / "x.gguf", arch)))
    assert (shape.family, shape.head_dim, shape.vocab_size) == (arch, head_dim, len(TOKENS))
    assert (shape.num_attention_heads, shape.num_key_value_heads) == (HEADS, KV_HEADS)
    assert (shape.hidden_size, shape.intermediate_size) == (HIDDEN, FEED)
    assert (shape.num_hidden_layers, shape.max_position_embeddings) == (LAYERS, 128)
    assert shape.rms_norm_eps == 1e-5, "not the float32 next to it"
    assert shape.rope.theta == 50000.0
    assert shape.tie_word_embeddings is False


def test_tied_and_biased_are_read_off_the_tensors(tmp_path: Path) -> None:
    extra = {"blk.0.attn_q.bias": np.zeros(64, dtype=np.float32)}
    found = config(write_gguf(tmp_path / "x.gguf", tied=True, extra=extra))
    assert found["tie_word_embeddings"] is True
    assert found["attention_bias"] is True


def test_linear_rope(tmp_path: Path) -> None:
    path = write_gguf(
        tmp_path / "x.gguf", llama__rope__scaling__type="linear", llama__rope__scaling__factor=4.0
    )
    assert (shape_of(config(path)).rope.kind, shape_of(config(path)).rope.factor) == ("linear", 4.0)


def test_llama3_rope_from_its_factors(tmp_path: Path) -> None:
    from transformers import LlamaConfig
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

    rope = {
        "rope_type": "llama3",
        "rope_theta": 500000.0,
        "factor": 32.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192,
    }
    theirs = LlamaConfig(
        hidden_size=HIDDEN,
        num_attention_heads=1,
        max_position_embeddings=131072,
        rope_parameters=rope,
    )
    scaled, _ = ROPE_INIT_FUNCTIONS["llama3"](theirs, "cpu")
    plain = 500000.0 ** -(np.arange(0, HIDDEN, 2) / HIDDEN)
    factors = (plain / scaled.double().numpy()).astype(np.float32)
    fields = {
        "llama__attention__key_length": HIDDEN,
        "llama__attention__value_length": HIDDEN,
    }
    path = write_gguf(tmp_path / "x.gguf", extra={"rope_freqs.weight": factors}, **fields)
    data = path.read_bytes().replace(
        np.float32(50000.0).tobytes(), np.float32(500000.0).tobytes(), 1
    )
    path.write_bytes(data)
    assert config(path)["rope_parameters"] == rope
    path = write_gguf(tmp_path / "y.gguf", extra={"rope_freqs.weight": factors * 2}, **fields)
    with pytest.raises(ModelError, match="rope_freqs"):
        config(path)


def test_yarn_is_passed_on_and_refused_by_name(tmp_path: Path) -> None:
    path = write_gguf(
        tmp_path / "x.gguf", llama__rope__scaling__type="yarn", llama__rope__scaling__factor=4.0
    )
    with pytest.raises(ConfigError) as raised:
        shape_of(config(path))
    assert raised.value.field == "rope_parameters.rope_type"


def test_partial_rotation_is_refused_by_name(tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "x.gguf", llama__rope__dimension_count=8)
    with pytest.raises(ConfigError) as raised:
        shape_of(config(path))
    assert raised.value.field == "rope_parameters.partial_rotary_factor"


@pytest.mark.parametrize(
    ("arch", "fields", "words"),
    [
        ("gemma2", {}, "gemma2"),
        ("llama", {"llama__expert_count": 8}, "mixture"),
        ("llama", {"llama__attention__value_length": 8}, "width"),
    ],
)
def test_refused(arch: str, fields: dict[str, Any], words: str, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=words):
        config(write_gguf(tmp_path / "x.gguf", arch, **fields))


def test_every_end_counts(tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "x.gguf", tokenizer__ggml__eot_token_id=0)
    generation = generation_config_of(read_gguf(path))
    assert generation == {"bos_token_id": 1, "eos_token_id": [2, 0]}
    assert eos_token_ids(config(path), generation) == (2, 0)
