"""Bytes of weights and of key-value cache on one logical core.

What NxD Inference 0.9 allocates, tensor by tensor:

- A linear is split over the tensor-parallel ranks; query heads are padded to a multiple of the
  degree and key-value heads replicated as `config.heads` has it (modules/attention/gqa.py), which
  enlarges their weights as well as the cache.
- The embedding is split along the hidden size, with `vocab_parallel` along the vocabulary; the
  output matrix always along the vocabulary, padded to a multiple of the degree
  (ParallelEmbedding and ColumnParallelLinear in models/*/modeling_*.py). Tied embeddings are
  loaded twice: `update_state_dict_for_tied_weights` clones the one into the other.
- Context or data parallelism of attention splits its weights over fewer ranks, and may keep two
  sets of them (`_attention_degrees`).
- Norms, the down-projections of latent attention and the router (in float32) are whole on every
  rank. Experts are divided by `moe_ep_degree` (or `ep_degree`), their width by the rest: with
  expert parallelism of one, every rank holds every expert at 1/tp of its width
  (modules/moe_v2.py).
- Quantised linears take one byte an element (half of one for MXFP4) and float32 scales.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from math import prod
from typing import Any, NamedTuple

from neuroncompile.config.dimensions import Dimensions
from neuroncompile.config.heads import shard_heads

__all__ = ["BYTES", "Cache", "cache_bytes", "cache_of", "weight_bytes"]

BYTES = {"float32": 4, "bfloat16": 2, "float16": 2, "float8_e4m3fn": 1, "float8_e5m2": 1}
"""Bytes of one element, by NxDI's dtype names."""


class _Tensor(NamedTuple):
    """What one rank holds of one tensor, or of equal ones.

    Attributes:
        group: how it is reported.
        name: module path, for `modules_to_not_convert`; empty for what is never quantised.
        rows: output channels on the rank, one scale each.
        columns: elements of a row.
        number: how many such tensors.
        element: bytes of an element when it is not the config's dtype.
    """

    group: str
    name: str
    rows: int
    columns: int
    number: int = 1
    element: int | None = None


def weight_bytes(model: Dimensions, neuron: Mapping[str, Any]) -> dict[str, int]:
    """Group → bytes of weights on one rank.

    Args:
        neuron: NxDI keywords: degrees, `torch_dtype`, `vocab_parallel`, the quantisation ones.
    """
    element = BYTES[neuron.get("torch_dtype") or "bfloat16"]
    quantised = _Quantised(neuron)
    sizes: Counter[str] = Counter()
    for tensor in _tensors(model, neuron):
        elements = tensor.rows * tensor.columns * tensor.number
        if quantised.takes(tensor.name):
            sizes[tensor.group] += quantised.data(elements)
            sizes["scales"] += quantised.scales(tensor)
        else:
            sizes[tensor.group] += elements * (tensor.element or element)
    return {group: size for group, size in sizes.items() if size}


class _Quantised:
    """Which linears are quantised, and what they take then."""

    def __init__(self, neuron: Mapping[str, Any]) -> None:
        self.on = bool(neuron.get("quantized"))
        self.excluded = tuple(neuron.get("modules_to_not_convert") or ())
        self.four_bits = str(neuron.get("quantization_dtype") or "").startswith(("f4", "mxfp4"))
        self.per_tensor = neuron.get("quantization_type", "per_tensor_symmetric").startswith(
            "per_tensor"
        )
        block = neuron.get("quantization_block_size")
        self.block = prod(block) if isinstance(block, (list, tuple)) else block or 0

    def takes(self, name: str) -> bool:
        return self.on and bool(name) and not any(part in name for part in self.excluded)

    def data(self, elements: int) -> int:
        return -(-elements // 2) if self.four_bits else elements

    def scales(self, tensor: _Tensor) -> int:
        elements = tensor.rows * tensor.columns
        if self.four_bits:  # one byte of exponent for 32 elements (OCP MX)
            return -(-elements // 32) * tensor.number
        if self.block:
            return -(-elements // self.block) * 4 * tensor.number
        return (1 if self.per_tensor else tensor.rows) * 4 * tensor.number


def _tensors(model: Dimensions, neuron: Mapping[str, Any]) -> Iterator[_Tensor]:
    tp = neuron.get("tp_degree") or 1
    hidden = max(model.hidden, neuron.get("padded_hidden_size") or 0)
    if neuron.get("vocab_parallel"):
        yield _Tensor("embedding", "", _share(model.vocab, tp), hidden)
    else:
        yield _Tensor("embedding", "", model.vocab, _share(hidden, tp))
    yield _Tensor("output", "lm_head", _share(model.vocab, tp), hidden)
    for layer, mixture in enumerate(model.mixture):
        name = f"layers.{layer}."
        attention = _latent_attention if model.latent else _attention
        for ranks in _attention_degrees(neuron, tp):
            yield from attention(model, hidden, ranks, f"{name}self_attn.")
        if mixture:
            yield from _experts(model, neuron, hidden, tp, f"{name}mlp.")
        else:
            yield from _mlp("mlp", f"{name}mlp.", hidden, _share(model.intermediate, tp))
        yield _Tensor("norms", "", model.layer_norms, hidden)
    yield _Tensor("norms", "", 1, hidden)


def _attention_degrees(neuron: Mapping[str, Any], tp: int) -> tuple[int, ...]:
    """Ranks that attention is split over, once for each copy of its weights.

    Context and data parallelism take their part of the ranks away from it; where prompts and
    decoding differ in that, both keep weights of their own (modules/attention/attention_base.py,
    `init_tkg_cp_qkv_o_proj`).
    """
    context = neuron.get("cp_degree") or 1
    data = neuron.get("attention_dp_degree") or 1
    return tuple(max(1, tp // degree) for degree in dict.fromkeys((context, data)))


def _attention(model: Dimensions, hidden: int, tp: int, name: str) -> Iterator[_Tensor]:
    heads = shard_heads(model.heads, model.kv_heads, tp)
    query = heads.padded_query // tp * model.head_dim
    key = heads.sharded_key_value // tp * model.head_dim
    yield _Tensor("attention", f"{name}q_proj", query, hidden)
    if model.attention_gate:
        yield _Tensor("attention", f"{name}gate_proj", query, hidden)
    yield _Tensor("attention", f"{name}k_proj", key, hidden)
    yield _Tensor("attention", f"{name}v_proj", key, hidden)
    yield _Tensor("attention", f"{name}o_proj", hidden, query)
    if model.qkv_bias:
        yield _Tensor("attention", "", query + 2 * key, 1)
    if model.o_bias:
        yield _Tensor("attention", "", hidden, 1)
    if model.qk_norm:
        yield _Tensor("norms", "", 2, model.head_dim)


def _latent_attention(model: Dimensions, hidden: int, tp: int, name: str) -> Iterator[_Tensor]:
    """The down-projections are plain linears, whole on every rank (NxDI contrib, DeepSeek-V3)."""
    latent = model.latent
    assert latent is not None
    heads = _share(model.heads, tp)
    query = hidden
    if latent.query_rank:
        query = latent.query_rank
        yield _Tensor("replicated attention", f"{name}q_a_proj", query, hidden)
        yield _Tensor("norms", "", 1, query)
    yield _Tensor("attention", f"{name}q_b_proj", heads * (latent.nope + latent.rope), query)
    down = latent.rank + latent.rope
    yield _Tensor("replicated attention", f"{name}kv_a_proj", down, hidden)
    yield _Tensor("norms", "", 1, latent.rank)
    up = heads * (latent.nope + latent.value)
    yield _Tensor("attention", f"{name}kv_b_proj", up, latent.rank)
    yield _Tensor("attention", f"{name}o_proj", hidden, heads * latent.value)


def _experts(
    model: Dimensions, neuron: Mapping[str, Any], hidden: int, tp: int, name: str
) -> Iterator[_Tensor]:
    number, ranks = _expert_share(model, neuron, tp)
    whole = max(model.expert_intermediate, neuron.get("padded_intermediate_size") or 0)
    width = _share(whole, ranks)
    yield _Tensor("router", "", model.experts, hidden, element=4)
    yield from _mlp("experts", f"{name}experts.", hidden, width, number)
    if model.family == "gpt_oss":  # its experts and router have biases
        yield _Tensor("experts", "", 2 * width + hidden, number)
    if model.shared_intermediate:
        shared = _share(model.shared_intermediate, tp)
        yield from _mlp("shared experts", f"{name}shared_experts.", hidden, shared)


def _expert_share(model: Dimensions, neuron: Mapping[str, Any], tp: int) -> tuple[int, int]:
    """(experts on a rank, ranks that one expert's width is split over)."""
    across = neuron.get("moe_ep_degree") or 1
    if across > 1:
        return _share(model.experts, across), neuron.get("moe_tp_degree") or 1
    return _share(model.experts, neuron.get("ep_degree") or 1), tp


def _mlp(group: str, name: str, hidden: int, width: int, number: int = 1) -> Iterator[_Tensor]:
    yield _Tensor(group, f"{name}gate_proj", width, hidden, number)
    yield _Tensor(group, f"{name}up_proj", width, hidden, number)
    yield _Tensor(group, f"{name}down_proj", hidden, width, number)


def _share(size: int, ranks: int) -> int:
    """The part of one rank, padded so that all are equal."""
    return -(-size // ranks)


class Cache(NamedTuple):
    """The key-value cache of one rank (NxDI 0.9, modules/kvcache/).

    Attributes:
        rows: sequences, padding included; blocks in the block layout.
        heads: key-value heads of the rank.
        width: elements of one key or value.
        lengths: positions of each layer; positions of a block in the block layout.
        element: bytes of one element.
        scales: float32 scales of a layer's keys and values together, where FP8 is not a cast.
    """

    rows: int
    heads: int
    width: int
    lengths: tuple[int, ...]
    element: int
    scales: int = 0

    @property
    def token(self) -> int:
        """Bytes that one more token of one sequence takes on the rank, with full lengths."""
        return 2 * len(self.lengths) * self.heads * self.width * self.element

    @property
    def bytes(self) -> int:
        scales = 4 * self.scales * len(self.lengths)
        return 2 * self.rows * self.heads * self.width * sum(self.lengths) * self.element + scales


def cache_bytes(model: Dimensions, neuron: Mapping[str, Any]) -> int:
    """layers x 2 x kv heads / tp x head_dim x length x (batch + padding) x element bytes."""
    return cache_of(model, neuron).bytes


def cache_of(model: Dimensions, neuron: Mapping[str, Any]) -> Cache:
    """The cache's shape.

    `kv_cache_quant` by itself changes a compiler flag only; the cache shrinks with
    `kv_quant_config` (models/config.py). With latent attention one head of rank + rope elements
    is kept whole on every rank, in both of the manager's buffers.
    """
    tp = neuron.get("tp_degree") or 1
    batch = neuron.get("kv_cache_batch_size") or neuron.get("batch_size") or 1
    rows = batch + (neuron.get("kv_cache_padding_size") or 0)
    length = neuron.get("max_length") or neuron.get("seq_len") or 1
    dtype = neuron.get("attention_dtype") or neuron.get("torch_dtype") or "bfloat16"
    quantised: Mapping[str, Any] = neuron.get("kv_quant_config") or {}
    if quantised:
        dtype = quantised.get("quant_dtype") or "float8_e4m3fn"
    if (ranks := neuron.get("attention_dp_degree") or 1) > 1:
        tp, rows = max(1, tp // ranks), _share(rows, ranks) + 1  # one row takes what is not kept
    if model.latent is not None:
        heads, width = 1, model.latent.rank + model.latent.rope
    else:
        heads = shard_heads(model.heads, model.kv_heads, tp).sharded_key_value // tp
        width = model.head_dim
    if neuron.get("is_block_kv_layout"):
        blocks = neuron.get("pa_num_blocks") or batch
        rows = blocks + (1 if neuron.get("is_prefix_caching") else 0)
        lengths = (neuron.get("pa_block_size") or length,) * model.layers
    else:
        lengths = _lengths(model, neuron, length, tp)
    scales = 0
    if quantised.get("direct_cast", True) is False:
        each = {"per_key_symmetric": heads, "per_channel_symmetric": width}
        scales = sum(each.get(str(quantised.get(f"{x}_quant_method")), 1) for x in "kv")
    return Cache(rows, heads, width, lengths, BYTES[dtype], scales)


def _lengths(model: Dimensions, neuron: Mapping[str, Any], length: int, tp: int) -> tuple[int, ...]:
    """Positions of each layer's cache, which depend on the family's class in NxDI.

    Llama and Mistral keep one window for all layers; GPT-OSS keeps its window in every other
    layer, to the next multiple of 128 above it; Llama 4 its chunk in the layers with rotary
    embedding. All others keep the full length in every layer, windowed or not.
    """
    full = (length,) * model.layers
    window = model.window
    if neuron.get("flash_decoding_enabled"):
        group = max(1, min(tp, model.heads) // model.kv_heads)
        full = (_share(length, group) + 128,) * model.layers
    elif window and model.family in ("llama", "mistral"):
        full = (window,) * model.layers
    elif window and model.family == "gpt_oss":
        short = ((window - 1) // 128 + 1) * 128
        full = tuple(length if layer % 2 else short for layer in range(model.layers))
    elif window and model.family in ("llama4", "llama4_text") and length > window:
        full = tuple(length if layer % 4 == 3 else window for layer in range(model.layers))
    if neuron.get("apply_seq_ids_mask"):
        full = tuple(positions + 128 for positions in full)
    return full
