"""A Hugging Face config from a GGUF header.

GGUF keeps the same numbers under llama.cpp's names, and leaves some to be read off the tensors:
a head that shares the embedding is absent, biases are there or not, and llama3's frequency
scaling is a tensor of factors.
"""

from __future__ import annotations

import math
import mmap
import struct
from pathlib import Path
from typing import Any

from neuroncompile.errors import ModelError
from neuroncompile.models.gguf_header import GGUFHeader

__all__ = ["ARCHITECTURES", "config_of", "generation_config_of"]

ARCHITECTURES = {
    "llama": "LlamaForCausalLM",
    "qwen2": "Qwen2ForCausalLM",
    "qwen3": "Qwen3ForCausalLM",
}
"""GGUF's `general.architecture` → Hugging Face class. Mistral's files call themselves llama."""

_SIZES = {
    "block_count": "num_hidden_layers",
    "embedding_length": "hidden_size",
    "feed_forward_length": "intermediate_size",
    "context_length": "max_position_embeddings",
    "attention.head_count": "num_attention_heads",
}
_LLAMA3 = {"low_freq_factor": 1.0, "high_freq_factor": 4.0, "original": 8192}


def config_of(header: GGUFHeader, path: Path) -> dict[str, Any]:
    """config.json of the model in the file, in transformers 5's spelling.

    Raises:
        ModelError: an architecture that is not read, a missing size, or a rope that has no
            Hugging Face spelling.
    """
    fields, tensors = header.fields, header.tensors
    arch = fields.get("general.architecture")
    if arch not in ARCHITECTURES:
        raise _bad(
            path,
            f"holds architecture {arch!r}, which is not read",
            f"architectures read from GGUF: {', '.join(ARCHITECTURES)}",
        )
    if fields.get(f"{arch}.expert_count"):
        raise _bad(path, "is a mixture of experts", "take the model in safetensors")
    embedding = tensors.get("token_embd.weight")
    if embedding is None:
        raise _bad(path, "has no token_embd.weight", "take the first part if it is split")
    sizes = {}
    for theirs, ours in _SIZES.items():
        value = fields.get(f"{arch}.{theirs}")
        if not isinstance(value, int) or isinstance(value, bool):
            raise _bad(path, f"has no usable {arch}.{theirs}", "convert the model again")
        sizes[ours] = value
    heads = sizes["num_attention_heads"]
    head_dim = fields.get(f"{arch}.attention.key_length") or sizes["hidden_size"] // max(heads, 1)
    if fields.get(f"{arch}.attention.value_length", head_dim) != head_dim:
        raise _bad(path, "has values of another width than keys", "take another model")
    config: dict[str, Any] = {
        "architectures": [ARCHITECTURES[arch]],
        "model_type": arch,
        "vocab_size": embedding.shape[0],
        **sizes,
        "num_key_value_heads": fields.get(f"{arch}.attention.head_count_kv", heads),
        "head_dim": head_dim,
        "hidden_act": "silu",
        "rms_norm_eps": _shortest(fields.get(f"{arch}.attention.layer_norm_rms_epsilon", 1e-6)),
        "tie_word_embeddings": "output.weight" not in tensors,
        "dtype": "bfloat16",
        "rope_parameters": _rope(header, path, str(arch), head_dim),
    }
    if arch == "llama":
        config["attention_bias"] = "blk.0.attn_q.bias" in tensors
        config["mlp_bias"] = "blk.0.ffn_gate.bias" in tensors
    return config | _token_ids(fields)


def generation_config_of(header: GGUFHeader) -> dict[str, Any]:
    """generation_config.json: the token ids, with every end llama.cpp would stop at."""
    ids = _token_ids(header.fields)
    ends = [header.fields.get(f"tokenizer.ggml.{name}_token_id") for name in ("eos", "eot", "eom")]
    found = list(dict.fromkeys(e for e in ends if isinstance(e, int)))
    if found:
        ids["eos_token_id"] = found[0] if len(found) == 1 else found
    return ids


def _token_ids(fields: dict[str, Any]) -> dict[str, Any]:
    names = {"bos": "bos", "eos": "eos", "padding": "pad"}
    return {
        f"{ours}_token_id": fields[f"tokenizer.ggml.{theirs}_token_id"]
        for theirs, ours in names.items()
        if f"tokenizer.ggml.{theirs}_token_id" in fields
    }


def _rope(header: GGUFHeader, path: Path, arch: str, head_dim: int) -> dict[str, Any]:
    fields = header.fields
    theta = _shortest(fields.get(f"{arch}.rope.freq_base", 10_000.0))
    rope: dict[str, Any] = {"rope_type": "default", "rope_theta": theta}
    kind = fields.get(f"{arch}.rope.scaling.type", "none")
    factor = fields.get(f"{arch}.rope.scaling.factor", fields.get(f"{arch}.rope.scale_linear"))
    if kind not in ("none", "") or (factor is not None and kind == "none" and factor != 1):
        rope |= {"rope_type": "linear" if kind == "none" else kind, "factor": _shortest(factor)}
    rotated = fields.get(f"{arch}.rope.dimension_count", head_dim)
    if rotated != head_dim:
        rope["partial_rotary_factor"] = rotated / head_dim
    if "rope_freqs.weight" in header.tensors:
        rope |= _llama3(header, path, theta, head_dim)
    return rope


def _llama3(header: GGUFHeader, path: Path, theta: float, head_dim: int) -> dict[str, Any]:
    """llama3's four numbers, from the factors its converter computed with them.

    Only the factor differs between the models that have them (Llama 3.1 to 3.3), so it is read
    off the lowest frequency and the whole tensor is checked against the formula.
    """
    tensor = header.tensors["rope_freqs.weight"]
    if tensor.quant != 0 or tensor.shape != (head_dim // 2,):
        raise _bad(path, "has rope_freqs of an unknown form", "take the model in safetensors")
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        raw = data[tensor.offset : tensor.offset + tensor.size]
    found = struct.unpack(f"<{head_dim // 2}f", raw)
    factor = _shortest(found[-1])
    low, high = _LLAMA3["low_freq_factor"], _LLAMA3["high_freq_factor"]
    for i, value in enumerate(found):
        turns = _LLAMA3["original"] / (2 * math.pi * theta ** (2 * i / head_dim))
        smooth = min(1.0, max(0.0, (turns - low) / (high - low)))
        expected = 1 / ((1 - smooth) / factor + smooth)
        if not math.isclose(value, expected, rel_tol=1e-4):
            raise _bad(path, "has rope_freqs of an unknown rule", "take the model in safetensors")
    return {
        "rope_type": "llama3",
        "factor": factor,
        "low_freq_factor": low,
        "high_freq_factor": high,
        "original_max_position_embeddings": int(_LLAMA3["original"]),
    }


def _shortest(value: Any) -> float:
    """The shortest decimal that is the same float32: what config.json had before conversion."""
    if not isinstance(value, float):
        return float(value)
    for digits in range(1, 10):
        short = float(f"{value:.{digits}g}")
        if struct.pack("<f", short) == struct.pack("<f", value):
            return short
    return value


def _bad(path: Path, what: str, fix: str) -> ModelError:
    return ModelError(f"{path} {what}", hint=fix, details={"path": str(path)})
