"""The numbers of a model that decide its size, read from any decoder's config.json.

Wider than what can be compiled: a family that no backend knows can still be sized. Raw and
normalised configs are both read, under the names that the families have given to one thing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from neuroncompile.errors import ModelError

__all__ = ["Dimensions", "Latent", "dimensions_of"]


class Latent(NamedTuple):
    """Multi-head latent attention (DeepSeek-V2, arXiv 2405.04434): ranks and head widths."""

    query_rank: int | None
    rank: int
    rope: int
    nope: int
    value: int


class Dimensions(NamedTuple):
    """Sizes of one decoder.

    Attributes:
        family: `model_type`.
        intermediate: width of a dense MLP.
        experts: routed experts of a mixture layer, 0 when there are none.
        active_experts: how many of them a token goes through.
        expert_intermediate: width of one expert.
        shared_intermediate: width of the shared experts together, 0 when there are none.
        mixture: for each layer, whether it is a mixture of experts.
        tied: whether the checkpoint keeps one matrix for embedding and output.
        qkv_bias, o_bias: whether those projections add a bias.
        qk_norm: whether queries and keys are normalised over the head.
        layer_norms: RMS norms over the hidden size in a layer.
        attention_gate: whether a gate as wide as the queries multiplies attention's output.
        latent: with latent attention, its widths.
        window: sliding window or attention chunk in tokens, None where there is none.
        unsized: parts of the checkpoint that these numbers leave out or only approximate.
    """

    family: str
    hidden: int
    layers: int
    vocab: int
    heads: int
    kv_heads: int
    head_dim: int
    intermediate: int
    experts: int
    active_experts: int
    expert_intermediate: int
    shared_intermediate: int
    mixture: tuple[bool, ...]
    tied: bool
    qkv_bias: bool
    o_bias: bool
    qk_norm: bool
    layer_norms: int
    attention_gate: bool
    latent: Latent | None
    window: int | None
    unsized: tuple[str, ...]

    @property
    def parameters(self) -> int:
        """Parameters of the checkpoint, norms and biases left out; 0.1 % off at most."""
        return self._parameters(self.experts)

    @property
    def active_parameters(self) -> int:
        """Parameters that one token is multiplied with."""
        return self._parameters(self.active_experts)

    def _parameters(self, experts: int) -> int:
        dense, mixed = self.mixture.count(False), self.mixture.count(True)
        wide = self.expert_intermediate * experts + self.shared_intermediate
        return (
            self.vocab * self.hidden * (1 if self.tied else 2)
            + self.layers * self._attention
            + dense * 3 * self.hidden * self.intermediate
            + mixed * self.hidden * (3 * wide + self.experts)
        )

    @property
    def _attention(self) -> int:
        if (latent := self.latent) is not None:
            query = latent.query_rank or self.hidden
            return (
                (self.hidden * query if latent.query_rank else 0)
                + query * self.heads * (latent.nope + latent.rope)
                + self.hidden * (latent.rank + latent.rope)
                + latent.rank * self.heads * (latent.nope + latent.value)
                + self.heads * latent.value * self.hidden
            )
        query = (3 if self.attention_gate else 2) * self.heads
        return self.hidden * self.head_dim * (query + 2 * self.kv_heads)


_GATED = ("afmoe", "qwen3_next")
_FOUR_NORMS = ("gemma2", "gemma3", "gemma3_text", "afmoe")
_QK_NORM = (
    "qwen3", "qwen3_moe", "qwen3_vl", "gemma3", "gemma3_text", "afmoe", "minimax_m3", "qwen3_next",
)  # fmt: skip
_QKV_BIAS = ("qwen2", "qwen2_vl", "gpt_oss")


def dimensions_of(config: Mapping[str, Any]) -> Dimensions:
    """Read a config.json, raw or normalised; the text model of a multimodal one.

    Raises:
        ModelError: a size that every decoder has is missing or no whole number.
    """
    fields = _flat(config)
    family = str(fields.get("model_type") or "")
    hidden = _size(fields, "hidden_size", "d_model", "n_embd")
    layers = _size(fields, "num_hidden_layers", "n_layers", "n_layer")
    heads = _size(fields, "num_attention_heads", "n_heads", "n_head")
    experts = _count(
        fields, "num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts"
    )
    if experts == 1:
        experts = 0
    intermediate = _count(fields, "intermediate_size", "ffn_hidden_size", "n_inner") or 4 * hidden
    expert = _count(fields, "moe_intermediate_size") or intermediate
    dense = _count(fields, "dense_intermediate_size", "intermediate_size_mlp") or intermediate
    return Dimensions(
        family=family,
        hidden=hidden,
        layers=layers,
        vocab=_size(fields, "vocab_size"),
        heads=heads,
        kv_heads=_count(fields, "num_key_value_heads", "kv_n_heads") or heads,
        head_dim=_count(fields, "head_dim") or hidden // heads,
        intermediate=dense,
        experts=experts,
        active_experts=_count(fields, "num_experts_per_tok", "moe_top_k") or min(experts, 1),
        expert_intermediate=expert if experts else 0,
        shared_intermediate=_shared(fields, family, expert) if experts else 0,
        mixture=_mixture(fields, layers) if experts else (False,) * layers,
        tied=fields.get("tie_word_embeddings") is True,
        qkv_bias=family in _QKV_BIAS or fields.get("attention_bias") is True,
        o_bias=family not in ("qwen2", "qwen2_vl") and fields.get("attention_bias") is True,
        qk_norm=family in _QK_NORM,
        layer_norms=4 if family in _FOUR_NORMS else 2,
        attention_gate=family in _GATED,
        latent=_latent(fields),
        window=_count(fields, "attention_chunk_size", "sliding_window") or None,
        unsized=_unsized(config, fields),
    )


def _flat(config: Mapping[str, Any]) -> dict[str, Any]:
    fields = dict(config)
    for name in ("ffn_config", "attn_config", "text_config"):
        inner = config.get(name)
        if isinstance(inner, Mapping):
            fields |= {k: v for k, v in inner.items() if v is not None and k != "model_type"}
            fields.setdefault("model_type", inner.get("model_type"))
    return fields


def _shared(fields: Mapping[str, Any], family: str, expert: int) -> int:
    width = _count(fields, "shared_expert_intermediate_size", "shared_intermediate_size")
    number = _count(fields, "n_shared_experts", "num_shared_experts")
    if family in ("llama4", "llama4_text"):
        number = 1  # its config has no field for what it always has
    return width or number * expert


def _mixture(fields: Mapping[str, Any], layers: int) -> tuple[bool, ...]:
    """Which layers are mixtures, in the ways the families say it."""
    flags = fields.get("moe_layer_freq")
    if isinstance(flags, (list, tuple)) and len(flags) == layers:
        return tuple(bool(flag) for flag in flags)
    listed = fields.get("moe_layers")
    if isinstance(listed, (list, tuple)) and listed:
        return tuple(layer in listed for layer in range(layers))
    first = _count(fields, "first_k_dense_replace", "num_dense_layers")
    step = _count(fields, "decoder_sparse_step", "interleave_moe_layer_step") or 1
    dense = fields.get("mlp_only_layers") or ()
    return tuple(
        layer >= first and (layer + 1) % step == 0 and layer not in dense for layer in range(layers)
    )


def _latent(fields: Mapping[str, Any]) -> Latent | None:
    rank = _count(fields, "kv_lora_rank")
    if not rank:
        return None
    return Latent(
        query_rank=_count(fields, "q_lora_rank") or None,
        rank=rank,
        rope=_size(fields, "qk_rope_head_dim"),
        nope=_size(fields, "qk_nope_head_dim"),
        value=_size(fields, "v_head_dim"),
    )


def _unsized(config: Mapping[str, Any], fields: Mapping[str, Any]) -> tuple[str, ...]:
    parts = []
    if isinstance(config.get("vision_config"), Mapping):
        parts.append("the vision encoder is not counted")
    kinds = fields.get("layer_types")
    if isinstance(kinds, (list, tuple)) and "linear_attention" in kinds:
        parts.append("layers of linear attention are counted as full attention")
    return tuple(parts)


def _count(fields: Mapping[str, Any], *names: str) -> int:
    """The first of these fields that is a positive whole number, else 0."""
    for name in names:
        value = fields.get(name)
        if isinstance(value, (int, float)) and not isinstance(value, bool) and value >= 1:
            return int(value)
    return 0


def _size(fields: Mapping[str, Any], *names: str) -> int:
    value = _count(fields, *names)
    if not value:
        raise ModelError(
            f"config.json has no {names[0]}, which a plan needs",
            hint=f"add {names[0]}, or take the config.json of the model's own repository",
            details={"field": names[0], "value": repr(fields.get(names[0]))},
        )
    return value
