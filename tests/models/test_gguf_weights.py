"""Every tensor of a GGUF file, bit for bit as transformers loads it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from neuroncompile.errors import ConfigError, ModelError
from neuroncompile.models.gguf import dequantise
from neuroncompile.models.gguf_tensors import hf_name
from tests.models.ggufs import write_gguf

np = pytest.importorskip("numpy")


def check(source: Path, out: Path, dtype: str) -> None:
    import torch
    from safetensors.torch import load_file
    from transformers import AutoConfig, AutoModelForCausalLM
    from transformers.modeling_gguf_pytorch_utils import load_gguf_checkpoint

    dequantise(source, out, dtype)
    ours = load_file(out)
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(
            AutoConfig.from_pretrained(source.parent, gguf_file=source.name)
        )
    loaded = load_gguf_checkpoint(
        source, return_tensors=True, model_to_load=model, torch_dtype=getattr(torch, dtype)
    )
    theirs = loaded["tensors"]
    needed = set(model.state_dict())
    if model.config.tie_word_embeddings:
        needed.remove("lm_head.weight")
    assert set(ours) == needed
    for name in needed:
        assert ours[name].dtype == getattr(torch, dtype)
        assert torch.equal(ours[name], theirs[name]), name


@pytest.mark.parametrize("arch", ["llama", "qwen2", "qwen3"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_equal_to_transformers(arch: str, dtype: str, tmp_path: Path) -> None:
    check(write_gguf(tmp_path / "x.gguf", arch, quant="Q8_0"), tmp_path / "out", dtype)


@pytest.mark.parametrize("quant", ["F32", "F16", "BF16", "Q4_0", "Q4_1", "Q5_0", "Q5_1"])
def test_every_quantisation_that_can_be_written(quant: str, tmp_path: Path) -> None:
    check(write_gguf(tmp_path / "x.gguf", quant=quant, tied=True), tmp_path / "out", "float32")


def test_rows_in_blocks_give_the_same_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = write_gguf(tmp_path / "x.gguf", quant="Q4_1")
    dequantise(source, tmp_path / "a", "bfloat16")
    monkeypatch.setattr("neuroncompile.models.gguf_weights._ROWS", 100)
    dequantise(source, tmp_path / "b", "bfloat16")
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_tensors_start_on_a_cache_line_and_progress_is_told(tmp_path: Path) -> None:
    told: list[tuple[int, int | None]] = []
    source = write_gguf(tmp_path / "x.gguf")
    dequantise(
        source, tmp_path / "out", "float32", lambda _, done, total: told.append((done, total))
    )
    length = int.from_bytes((tmp_path / "out").read_bytes()[:8], "little")
    assert (8 + length) % 64 == 0
    assert told[-1][0] == told[-1][1]
    assert told == sorted(told)


def test_bfloat16_rounds_as_torch_does() -> None:
    import torch

    from neuroncompile.models.gguf_weights import _as

    bits = np.random.default_rng(0).integers(0, 2**32, 200_000, dtype=np.uint32)
    edges: Any = [0x3F808000, 0x3F818000, 0x3F808001, 0x7F7FFFFF, 0x80000000, 0x7F800000, 1]
    values = np.concatenate([bits, np.array(edges, dtype=np.uint32)]).view(np.float32)
    values = values[~np.isnan(values)]
    for dtype in ("bfloat16", "float16"):
        theirs = torch.from_numpy(values.copy()).to(getattr(torch, dtype)).view(torch.int16)
        assert np.array_equal(_as(values, dtype).view(np.int16), theirs.numpy())
    nan = _as(np.array([np.nan], dtype=np.float32), "bfloat16")
    assert torch.from_numpy(nan.view(np.int16)).view(torch.bfloat16).isnan().all()


def test_another_dtype_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="float64") as raised:
        dequantise(tmp_path / "x", tmp_path / "y", "float64")
    assert raised.value.field == "torch_dtype"


def test_an_unknown_tensor_is_named(tmp_path: Path) -> None:
    extra = {"blk.0.attn_sinks.weight": np.zeros(4, dtype=np.float32)}
    source = write_gguf(tmp_path / "x.gguf", extra=extra)
    with pytest.raises(ModelError, match="attn_sinks"):
        dequantise(source, tmp_path / "out", "float32")


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        ("token_embd.weight", "model.embed_tokens.weight"),
        ("output.weight", "lm_head.weight"),
        ("blk.12.attn_k.bias", "model.layers.12.self_attn.k_proj.bias"),
        ("blk.0.ffn_norm.weight", "model.layers.0.post_attention_layernorm.weight"),
        ("blk.0.unknown.weight", None),
        ("output_norm.bias", None),
    ],
)
def test_names(theirs: str, ours: str | None) -> None:
    assert hf_name(theirs) == ours
