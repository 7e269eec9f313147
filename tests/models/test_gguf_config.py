"""Configs from GGUF headers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from neuroncompile.errors import ConfigError, ModelError
from neuroncompile.models.architecture import eos_token_ids, shape_of
from neuroncompile.models.gguf_config import config_of, generation_config_of
from neuroncompile.models.gguf_header import GGUFHeader, read_gguf
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
    widths = {"q": HIDDEN, "k": HIDDEN // 2, "v": HIDDEN // 2, "output": HIDDEN}
    extra = {
        f"blk.{i}.attn_{part}.bias": np.zeros(width, dtype=np.float32)
        for i in range(LAYERS)
        for part, width in widths.items()
    }
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
        num_attention_heads=HEADS,
        max_position_embeddings=131072,
        rope_parameters=rope,
    )
    scaled, _ = ROPE_INIT_FUNCTIONS["llama3"](theirs, "cpu")
    dim = HIDDEN // HEADS
    plain = 500000.0 ** -(np.arange(0, dim, 2) / dim)
    factors = (plain / scaled.double().numpy()).astype(np.float32)
    path = write_gguf(tmp_path / "x.gguf", extra={"rope_freqs.weight": factors})
    data = path.read_bytes().replace(
        np.float32(50000.0).tobytes(), np.float32(500000.0).tobytes(), 1
    )
    path.write_bytes(data)
    assert config(path)["rope_parameters"] == rope
    path = write_gguf(tmp_path / "y.gguf", extra={"rope_freqs.weight": factors * 2})
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
        ("llama", {"split__count": 3}, "one of 3 parts"),
        ("llama", {"llama__attention__sliding_window": 4096}, "sliding_window = 4096"),
        ("llama", {"llama__logit_scale": 0.5}, "logit_scale = 0.5"),
        ("qwen2", {"qwen2__shiny_new_number": 3}, "shiny_new_number"),
        ("llama", {"llama__attention__key_length": 32}, "q_proj.weight is of shape"),
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


@pytest.mark.parametrize("name", ["blk.1.ffn_up.weight", "output_norm.weight", "blk.0.attn_q.bias"])
def test_a_missing_tensor_is_named(name: str, tmp_path: Path) -> None:
    arch = "qwen2" if name.endswith("bias") else "llama"
    with pytest.raises(ModelError, match="missing") as raised:
        config(write_gguf(tmp_path / "x.gguf", arch, without=(name,)))
    assert name.rpartition(".")[2] in str(raised.value)


def test_a_field_that_changes_nothing_is_no_obstacle(tmp_path: Path) -> None:
    fields = {"llama__logit_scale": 1.0, "llama__attention__causal": True, "llama__expert_count": 0}
    plain, other = write_gguf(tmp_path / "x.gguf"), write_gguf(tmp_path / "y.gguf", **fields)
    assert config(plain) == config(other)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    extra = {"rope_freqs.weight": np.ones(HIDDEN // HEADS // 2, dtype=np.float32)}
    return write_gguf(tmp_path_factory.mktemp("gguf") / "x.gguf", extra=extra)


VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(1 << 63), (1 << 64) - 1),
    st.floats(),
    st.text(max_size=4),
    st.lists(st.integers(0, 64), max_size=3),
)


@settings(deadline=None)
@given(name=st.integers(0), value=VALUES, data=st.data())
def test_any_value_of_any_field_is_read_or_refused(
    whole: Path, name: int, value: object, data: st.DataObject
) -> None:
    header = read_gguf(whole)
    known = sorted(header.fields)
    fields = header.fields | {known[name % len(known)]: value}
    for _ in range(data.draw(st.integers(0, 2))):
        fields[data.draw(st.sampled_from([*known, "llama.rope.scaling.type"]))] = data.draw(VALUES)
    changed = GGUFHeader(fields, header.tensors)
    try:
        found = config_of(changed, whole)
        generation_config_of(changed)
        shape_of(found)
    except (ModelError, ConfigError):
        pass
