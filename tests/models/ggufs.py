"""Tiny GGUF files, written by the gguf library as llama.cpp's converter would."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gguf
import numpy as np
from numpy.typing import NDArray

HEADS, KV_HEADS, HIDDEN, FEED, LAYERS = 4, 2, 64, 96, 2
TOKENS = [
    "<|end|>",
    "<|im_start|>",
    "<|im_end|>",
    *[chr(c) for c in range(33, 127)],
    "Ġ",
    "Ċ",
    "he",
    "hel",
    "Ġhe",
    "<tool>",
]
MERGES = ["h e", "he l", "Ġ he"]


PIECES = [
    *[(t, k, 0.0) for t, k in (("<unk>", 2), ("<s>", 3), ("</s>", 3))],
    *[(f"<0x{b:02X}>", 6, 0.0) for b in range(256)],
    *[
        (piece, 1, -float(rank))
        for rank, piece in enumerate(
            [
                "▁t",
                "he",
                "▁the",
                "in",
                "er",
                "▁a",
                "▁▁",
                "▁he",
                "ll",
                "▁hell",
                "lo",
                "▁hello",
                "on",
                "re",
                "at",
                "▁w",
                "or",
                "▁wor",
                "ld",
                "▁world",
                "▁▁▁▁",
                "é",
                "日本",
            ]
        )
    ],
    *[(c, 1, -100.0 - i) for i, c in enumerate("▁abcdefghijklmnopqrstuvwxyz.,!日本語")],
    ("[INST]", 4, 0.0),
]
"""A sentencepiece vocabulary: (piece, token type, score)."""


def write_sentencepiece(path: Path, **fields: Any) -> Path:
    """A GGUF file with a sentencepiece tokenizer and no tensors."""
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_tokenizer_model("llama")
    writer.add_tokenizer_pre("default")
    writer.add_token_list([piece for piece, _, _ in PIECES])
    writer.add_token_types([kind for _, kind, _ in PIECES])
    writer.add_token_scores([score for _, _, score in PIECES])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_unk_token_id(0)
    for name, value in fields.items():
        writer.add_bool(name.replace("__", "."), value)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def tensors(arch: str, *, tied: bool = False, seed: int = 0) -> dict[str, NDArray[np.float32]]:
    """Random weights by GGUF name; head dimension is 16, or 32 for qwen3."""
    rng = np.random.default_rng(seed)
    head_dim = 32 if arch == "qwen3" else HIDDEN // HEADS

    def new(*shape: int) -> NDArray[np.float32]:
        return rng.standard_normal(shape, dtype=np.float32)

    found = {"token_embd.weight": new(len(TOKENS), HIDDEN), "output_norm.weight": new(HIDDEN)}
    if not tied:
        found["output.weight"] = new(len(TOKENS), HIDDEN)
    for i in range(LAYERS):
        block = {
            "attn_norm.weight": new(HIDDEN),
            "attn_q.weight": new(HEADS * head_dim, HIDDEN),
            "attn_k.weight": new(KV_HEADS * head_dim, HIDDEN),
            "attn_v.weight": new(KV_HEADS * head_dim, HIDDEN),
            "attn_output.weight": new(HIDDEN, HEADS * head_dim),
            "ffn_norm.weight": new(HIDDEN),
            "ffn_gate.weight": new(FEED, HIDDEN),
            "ffn_up.weight": new(FEED, HIDDEN),
            "ffn_down.weight": new(HIDDEN, FEED),
        }
        if arch == "qwen2":
            block["attn_q.bias"] = new(HEADS * head_dim)
            block["attn_k.bias"] = new(KV_HEADS * head_dim)
            block["attn_v.bias"] = new(KV_HEADS * head_dim)
        if arch == "qwen3":
            block |= {"attn_q_norm.weight": new(head_dim), "attn_k_norm.weight": new(head_dim)}
        found |= {f"blk.{i}.{name}": value for name, value in block.items()}
    return found


def write_gguf(
    path: Path,
    arch: str = "llama",
    *,
    quant: str = "F32",
    tied: bool = False,
    pre: str | None = "smollm",
    extra: dict[str, NDArray[Any]] | None = None,
    without: tuple[str, ...] = (),
    **fields: Any,
) -> Path:
    """Write a whole tiny model; `fields` are added as metadata ("rope__scaling__type" dotted)."""
    writer = gguf.GGUFWriter(path, arch)
    writer.add_block_count(LAYERS)
    writer.add_context_length(128)
    writer.add_embedding_length(HIDDEN)
    writer.add_feed_forward_length(FEED)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(50000.0)
    writer.add_vocab_size(len(TOKENS))
    if arch == "qwen3":
        writer.add_key_length(32)
        writer.add_value_length(32)
    writer.add_tokenizer_model("gpt2")
    if pre is not None:
        writer.add_tokenizer_pre(pre)
    writer.add_token_list(TOKENS)
    kinds = [3, 3, 3] + [1] * (len(TOKENS) - 4) + [4]
    writer.add_token_types(kinds)
    writer.add_token_merges(MERGES)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_chat_template("{{ messages[0].content }}")
    for name, value in fields.items():
        key = name.replace("__", ".")
        add = {bool: writer.add_bool, int: writer.add_uint32, str: writer.add_string}
        add.get(type(value), writer.add_float32)(key, value)
    kind = gguf.GGMLQuantizationType[quant]
    for name, value in (tensors(arch, tied=tied) | (extra or {})).items():
        if name in without:
            continue
        if value.ndim == 2 and value.shape[-1] % gguf.GGML_QUANT_SIZES[kind][0] == 0:
            writer.add_tensor(name, gguf.quants.quantize(value, kind), raw_dtype=kind)
        else:
            writer.add_tensor(name, value)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path
