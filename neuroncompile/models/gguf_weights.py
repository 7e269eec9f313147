"""A GGUF file's weights as one safetensors file with Hugging Face names.

Tensor by tensor, and large ones by rows, so that memory does not grow with the model.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from neuroncompile.errors import ConfigError, ToolchainError
from neuroncompile.models.gguf_config import config_of
from neuroncompile.models.gguf_header import QUANTS, GGUFTensor, read_gguf
from neuroncompile.models.gguf_tensors import named_tensors
from neuroncompile.models.progress import Progress

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["dequantise"]

_DTYPES = {"float32": ("F32", 4), "bfloat16": ("BF16", 2), "float16": ("F16", 2)}
_ROWS = 8 << 20  # float32 weights held at once


def dequantise(source: Path, out: Path, dtype: str, progress: Progress | None = None) -> None:
    """Write the weights of a GGUF file as safetensors.

    Values are those of the quantised blocks in float32, rounded to nearest even for the other
    dtypes. Llama's query and key rows are put back from llama.cpp's interleaved order into
    Hugging Face's two halves.

    Args:
        source: the .gguf file.
        out: the .safetensors file to write; the caller publishes it.
        dtype: "float32", "bfloat16" or "float16".

    Raises:
        ConfigError: another dtype.
        ModelError: the file is broken or has a tensor without a Hugging Face name.
        ToolchainError: numpy or gguf is not installed.
    """
    if dtype not in _DTYPES:
        raise ConfigError(
            f"torch_dtype {dtype} cannot be made from a GGUF file",
            field="torch_dtype",
            value=dtype,
            legal=list(_DTYPES),
            hint=f"use --dtype with one of {', '.join(_DTYPES)}",
        )
    try:
        import gguf.quants
        import numpy as np
    except ImportError:
        raise ToolchainError(
            "dequantising a GGUF file needs numpy and gguf",
            hint="pip install 'neuroncompile[cpu]'",
        ) from None
    header = read_gguf(source)
    named = named_tensors(header, source)
    head_counts = _head_counts(config_of(header, source))
    data = np.memmap(source, dtype=np.uint8, mode="r")
    total = done = 0
    total = sum(tensor.size for tensor in named.values())
    with out.open("wb") as file:
        _write_header(file, named, dtype)
        for name, tensor in named.items():
            heads = head_counts.get(tensor.name.split(".")[-2])
            rows = tensor.shape[0] if heads else max(1, _ROWS // tensor.shape[-1])
            for block in _blocks(data, tensor, rows):
                values = gguf.quants.dequantize(block, gguf.GGMLQuantizationType(tensor.quant))
                if heads:
                    values = _unpermuted(values, heads, name)
                _as(values, dtype).tofile(file)
            done += tensor.size
            if progress is not None:
                progress(f"dequantising {source.name}", done, total)


def _head_counts(config: Mapping[str, Any]) -> dict[str, int]:
    """GGUF part → heads whose rows llama.cpp's converter interleaved; only Llama's are."""
    if config["model_type"] != "llama":
        return {}
    return {"attn_q": config["num_attention_heads"], "attn_k": config["num_key_value_heads"]}


def _write_header(file: BinaryIO, named: dict[str, GGUFTensor], dtype: str) -> None:
    code, width = _DTYPES[dtype]
    table: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    at = 0
    for name, tensor in named.items():
        size = width
        for dim in tensor.shape:
            size *= dim
        table[name] = {"dtype": code, "shape": tensor.shape, "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(table, separators=(",", ":")).encode()
    text += b" " * (-(8 + len(text)) % 64)  # tensors start on a cache line
    file.write(len(text).to_bytes(8, "little") + text)


def _blocks(data: NDArray[np.uint8], tensor: GGUFTensor, rows: int) -> Any:
    _, block, block_bytes = QUANTS[tensor.quant]
    row_bytes = tensor.shape[-1] // block * block_bytes
    table = data[tensor.offset : tensor.offset + tensor.size].reshape(-1, row_bytes)
    for start in range(0, len(table), rows):
        yield table[start : start + rows]


def _unpermuted(values: NDArray[np.float32], heads: int, name: str) -> NDArray[np.float32]:
    """Rows (or a bias) from pairs side by side to the two halves of each head."""
    flat = values.reshape(-1) if name.endswith(".bias") else values
    dim = flat.shape[0] // heads // 2
    return flat.reshape(heads, dim, 2, *flat.shape[1:]).swapaxes(1, 2).reshape(values.shape)


def _as(values: NDArray[np.float32], dtype: str) -> NDArray[Any]:
    import numpy as np

    values = np.ascontiguousarray(values, dtype=np.float32)
    if dtype == "float32":
        return values
    if dtype == "float16":
        with np.errstate(over="ignore"):  # to infinity, as torch rounds
            return values.astype(np.float16)
    bits = values.view(np.uint32)
    rounded = (bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))) >> np.uint32(16)
    return np.where(np.isnan(values), np.uint32(0x7FC0), rounded).astype(np.uint16)
