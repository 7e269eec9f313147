"""The tensors a GGUF file has to hold, by Hugging Face's names."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from neuroncompile.errors import ModelError
from neuroncompile.models.gguf_header import GGUFHeader, GGUFTensor

__all__ = ["check_tensors", "hf_name", "named_tensors"]

_OUTER = {
    "token_embd": "model.embed_tokens",
    "output_norm": "model.norm",
    "output": "lm_head",
}
_INNER = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
_DERIVED = {"rope_freqs.weight"}  # in config.json as rope_parameters
_BLOCK = re.compile(r"blk\.(\d+)\.(\w+)\.(weight|bias)")


def hf_name(name: str) -> str | None:
    """Hugging Face's name of a GGUF tensor; None where none is known."""
    if match := _BLOCK.fullmatch(name):
        part = _INNER.get(match[2])
        return f"model.layers.{match[1]}.{part}.{match[3]}" if part else None
    stem, _, kind = name.rpartition(".")
    return f"{_OUTER[stem]}.{kind}" if stem in _OUTER and kind == "weight" else None


def check_tensors(header: GGUFHeader, source: Path, config: Mapping[str, Any]) -> None:
    """Compare the table with what a model of this config has, before anything is compiled.

    Args:
        config: as derived from the same header.

    Raises:
        ModelError: a tensor is missing, of another shape, or has no Hugging Face name.
    """
    found = named_tensors(header, source)
    layers = config["num_hidden_layers"]
    if layers > len(found):
        raise ModelError(
            f"{source} is not whole: {len(found)} tensors cannot be {layers} layers",
            hint="download or convert the model again",
            details={"path": str(source)},
        )
    wanted = _expected(config)
    for name, shape in wanted.items():
        tensor = found.pop(name, None)
        if tensor is None or tensor.shape != shape:
            was = "missing" if tensor is None else f"of shape {list(tensor.shape)}"
            raise ModelError(
                f"{source} is not whole: the tensor for {name} is {was}, {list(shape)} expected",
                hint="download or convert the model again",
                details={"path": str(source), "tensor": name},
            )
    if found:
        name = next(iter(found))
        raise ModelError(
            f"{source} has a tensor {found[name].name}, which its architecture does not have",
            hint="take the model in safetensors",
            details={"path": str(source), "tensor": found[name].name},
        )


def _expected(config: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    """Hugging Face name → shape of every tensor of a model."""
    hidden, feed, dim = config["hidden_size"], config["intermediate_size"], config["head_dim"]
    query, value = config["num_attention_heads"] * dim, config["num_key_value_heads"] * dim
    family = config["model_type"]
    linears = {
        "self_attn.q_proj": (query, hidden),
        "self_attn.k_proj": (value, hidden),
        "self_attn.v_proj": (value, hidden),
        "self_attn.o_proj": (hidden, query),
        "mlp.gate_proj": (feed, hidden),
        "mlp.up_proj": (feed, hidden),
        "mlp.down_proj": (hidden, feed),
    }
    layer: dict[str, tuple[int, ...]] = {f"{n}.weight": shape for n, shape in linears.items()}
    for name, shape in linears.items():
        attention, output = name.startswith("self_attn"), name.endswith("o_proj")
        if (family == "qwen2" and attention and not output) or config.get(
            "attention_bias" if attention else "mlp_bias"
        ):
            layer[f"{name}.bias"] = shape[:1]
    layer |= {"input_layernorm.weight": (hidden,), "post_attention_layernorm.weight": (hidden,)}
    if family == "qwen3":
        layer |= {"self_attn.q_norm.weight": (dim,), "self_attn.k_norm.weight": (dim,)}
    outer: dict[str, tuple[int, ...]] = {
        "model.embed_tokens.weight": (config["vocab_size"], hidden),
        "model.norm.weight": (hidden,),
    }
    if not config["tie_word_embeddings"]:
        outer["lm_head.weight"] = (config["vocab_size"], hidden)
    return outer | {
        f"model.layers.{i}.{name}": shape
        for i in range(config["num_hidden_layers"])
        for name, shape in layer.items()
    }


def named_tensors(header: GGUFHeader, source: Path) -> dict[str, GGUFTensor]:
    """Hugging Face name → tensor, in the file's order.

    Raises:
        ModelError: a tensor has no such name.
    """
    named: dict[str, GGUFTensor] = {}
    for tensor in header.tensors.values():
        if tensor.name in _DERIVED:
            continue
        name = hf_name(tensor.name)
        if name is None:
            raise ModelError(
                f"{source} has a tensor {tensor.name}, which has no Hugging Face name",
                hint="take the model in safetensors",
                details={"path": str(source), "tensor": tensor.name},
            )
        named[name] = tensor
    return named
