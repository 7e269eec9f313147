"""A Hugging Face config from a GGUF header.

GGUF keeps the same numbers under llama.cpp's names, and leaves some to be read off the tensors:
a head that shares the embedding is absent, biases are there or not, and llama3's frequency
scaling is a tensor of factors.
"""

from __future__ import annotations

import math
import struct
from pathlib import Path
from typing import Any

from neuroncompile.errors import ModelError
from neuroncompile.models.gguf_header import GGUFHeader
from neuroncompile.models.gguf_tensors import check_tensors

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
_READ = {
    *_SIZES,
    "attention.head_count_kv",
    "attention.key_length",
    "attention.value_length",
    "attention.layer_norm_rms_epsilon",
    "rope.freq_base",
    "rope.dimension_count",
    "rope.scale_linear",
    "rope.scaling.type",
    "rope.scaling.factor",
}
_NEUTRAL: dict[str, tuple[Any, ...] | None] = {
    "vocab_size": None,  # the embedding's rows count
    "tensor_data_layout": ("reference", "Meta AI original pth"),
    "attention.layer_norm_epsilon": None,  # of norms that these architectures do not have
    "attention.causal": (True,),
    "attention.sliding_window": (0,),
    "attention.clamp_kqv": (0,),
    "attention.max_alibi_bias": (0,),
    "attention.scale": (0,),
    "attn_logit_softcapping": (0,),
    "final_logit_softcapping": (0,),
    "logit_scale": (0, 1),
    "residual_scale": (0, 1),
    "embedding_scale": (0, 1),
    "use_parallel_residual": (False,),
    "pooling_type": (0,),
    "expert_count": (0,),
    "expert_used_count": (0,),
    "rope.scaling.finetuned": None,
    "rope.scaling.original_context_length": None,  # of yarn, which is passed on by its name
}
"""Other fields of an architecture → values that change no number; None: none does."""
_LARGEST = 3.4e38  # a float32; none of these numbers is negative
_LLAMA3 = {"low_freq_factor": 1.0, "high_freq_factor": 4.0, "original": 8192}


def config_of(header: GGUFHeader, path: Path) -> dict[str, Any]:
    """config.json of the model in the file, in transformers 5's spelling.

    Raises:
        ModelError: an architecture that is not read, a missing size, or a rope that has no
            Hugging Face spelling.
    """
    fields, tensors = header.fields, header.tensors
    arch = fields.get("general.architecture")
    if not isinstance(arch, str) or arch not in ARCHITECTURES:
        raise _bad(
            path,
            f"holds architecture {arch!r}, which is not read",
            f"architectures read from GGUF: {', '.join(ARCHITECTURES)}",
        )
    if fields.get("split.count", 1) not in (0, 1):
        raise _bad(
            path,
            f"is one of {fields['split.count']} parts",
            "join them with `llama-gguf-split --merge` and name the result",
        )
    if fields.get(f"{arch}.expert_count"):
        raise _bad(path, "is a mixture of experts", "take the model in safetensors")
    _refuse_unread(fields, arch, path)
    embedding = tensors.get("token_embd.weight")
    if embedding is None:
        raise _bad(path, "has no token_embd.weight", "take a file that holds the whole model")
    sizes = {ours: _size(fields, f"{arch}.{theirs}", path) for theirs, ours in _SIZES.items()}
    heads = sizes["num_attention_heads"]
    head_dim = _size(
        fields, f"{arch}.attention.key_length", path, sizes["hidden_size"] // heads or None
    )
    if fields.get(f"{arch}.attention.value_length", head_dim) != head_dim:
        raise _bad(path, "has values of another width than keys", "take another model")
    epsilon = _number(fields, f"{arch}.attention.layer_norm_rms_epsilon", path, 1e-6)
    config: dict[str, Any] = {
        "architectures": [ARCHITECTURES[arch]],
        "model_type": arch,
        "vocab_size": embedding.shape[0],
        **sizes,
        "num_key_value_heads": _size(fields, f"{arch}.attention.head_count_kv", path, heads),
        "head_dim": head_dim,
        "hidden_act": "silu",
        "rms_norm_eps": epsilon,
        "tie_word_embeddings": "output.weight" not in tensors,
        "dtype": "bfloat16",
        "rope_parameters": _rope(header, path, str(arch), head_dim),
    }
    if arch == "llama":
        config["attention_bias"] = "blk.0.attn_q.bias" in tensors
        config["mlp_bias"] = "blk.0.ffn_gate.bias" in tensors
    check_tensors(header, path, config)
    return config | _token_ids(fields)


def _refuse_unread(fields: dict[str, Any], arch: str, path: Path) -> None:
    """A field that may change numbers and that nobody here reads stops the model by its name."""
    for field, value in fields.items():
        name = field.removeprefix(f"{arch}.")
        if name == field or name in _READ:
            continue
        neutral = _NEUTRAL.get(name, ())
        if neutral is not None and value not in neutral:
            raise _bad(
                path, f"has {field} = {value!r:.60}, which is not read", "take another model"
            )


def generation_config_of(header: GGUFHeader) -> dict[str, Any]:
    """generation_config.json: the token ids, with every end llama.cpp would stop at."""
    ids = _token_ids(header.fields)
    ends = [header.fields.get(f"tokenizer.ggml.{name}_token_id") for name in ("eos", "eot", "eom")]
    found = list(dict.fromkeys(e for e in ends if type(e) is int and 0 <= e < 0xFFFFFFFF))
    if found:
        ids["eos_token_id"] = found[0] if len(found) == 1 else found
    return ids


def _token_ids(fields: dict[str, Any]) -> dict[str, Any]:
    names = {"bos": "bos", "eos": "eos", "padding": "pad"}
    found = {}
    for theirs, ours in names.items():
        value = fields.get(f"tokenizer.ggml.{theirs}_token_id")
        if type(value) is int and 0 <= value < 0xFFFFFFFF:  # all ones: none
            found[f"{ours}_token_id"] = value
    return found


def _rope(header: GGUFHeader, path: Path, arch: str, head_dim: int) -> dict[str, Any]:
    fields = header.fields
    theta = _number(fields, f"{arch}.rope.freq_base", path, 10_000.0)
    rope: dict[str, Any] = {"rope_type": "default", "rope_theta": theta}
    kind = fields.get(f"{arch}.rope.scaling.type") or "none"
    linear = _number(fields, f"{arch}.rope.scale_linear", path, 1.0)
    factor = _number(fields, f"{arch}.rope.scaling.factor", path, linear)
    if kind == "none" and factor not in (0, 1):
        kind = "linear"  # older files name no type
    if kind != "none":
        rope |= {"rope_type": kind, "factor": factor}
    rotated = _size(fields, f"{arch}.rope.dimension_count", path, head_dim)
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
    with path.open("rb") as file:
        file.seek(tensor.offset)
        found = struct.unpack(f"<{head_dim // 2}f", file.read(tensor.size))
    if theta == 0 or not all(math.isfinite(value) and value > 0 for value in found):
        raise _bad(path, "has rope_freqs of an unknown rule", "take the model in safetensors")
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


def _size(fields: dict[str, Any], name: str, path: Path, default: int | None = None) -> int:
    value = fields.get(name, default)
    if isinstance(value, list) and value and all(entry == value[0] for entry in value):
        value = value[0]  # one for each layer
    if type(value) is not int or not 0 < value < 1 << 31:
        what = f"has {name} = {value!r:.60}" if name in fields else f"has no {name}"
        raise _bad(path, what, "convert the model again; a whole number is needed")
    return value


def _number(fields: dict[str, Any], name: str, path: Path, default: float) -> float:
    value = fields.get(name, default)
    if type(value) not in (int, float) or not 0 <= value <= _LARGEST:
        raise _bad(path, f"has {name} = {value!r:.60}", "convert the model again")
    return _shortest(float(value))


def _shortest(value: float) -> float:
    """The shortest decimal that is the same float32: what config.json had before conversion."""
    for digits in range(1, 10):
        short = float(f"{value:.{digits}g}")
        if struct.pack("<f", short) == struct.pack("<f", value):
            return short
    return value


def _bad(path: Path, what: str, fix: str) -> ModelError:
    return ModelError(f"{path} {what}", hint=fix, details={"path": str(path)})
