"""What the cpu target computes with: every number of a model, checked.

A field that changes numbers and that the cpu target cannot honour is refused by name: a model
that answers slightly wrong is worse than one that does not start.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from neuroncompile.errors import ConfigError, ModelError
from neuroncompile.models.families import ARCHITECTURES, Architecture, architecture_of
from neuroncompile.models.normal import normalise

__all__ = ["ROPE_KINDS", "ModelShape", "Rope", "shape_of"]


class Rope(NamedTuple):
    """Rotary position embedding over the whole head, halves rotated (not interleaved).

    Attributes:
        kind: "default", "linear" or "llama3", as in transformers' `ROPE_INIT_FUNCTIONS`.
        theta: base of the frequencies.
        factor: what positions ("linear") or low frequencies ("llama3") are divided by.
        low_freq_factor, high_freq_factor, original_max_position_embeddings: "llama3" only.
    """

    kind: str
    theta: float
    factor: float | None = None
    low_freq_factor: float | None = None
    high_freq_factor: float | None = None
    original_max_position_embeddings: int | None = None


class ModelShape(NamedTuple):
    """Everything numeric the cpu target reads.

    Attributes:
        qkv_bias, o_bias, mlp_bias: whether those linears add a bias.
        qk_norm: whether queries and keys are RMS-normalised over the head, before the rotation.
        sliding_windows: a layer's window W, or None for all positions; position i attends to
            i - W + 1 … i, as in transformers.
    """

    family: str
    architecture: str
    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    max_position_embeddings: int
    rms_norm_eps: float
    hidden_act: str
    tie_word_embeddings: bool
    qkv_bias: bool
    o_bias: bool
    mlp_bias: bool
    qk_norm: bool
    rope: Rope
    sliding_windows: tuple[int | None, ...]


ROPE_KINDS = ("default", "linear", "llama3")
_LLAMA3 = (
    "factor",
    "low_freq_factor",
    "high_freq_factor",
    "original_max_position_embeddings",
)
_ROPE_FIELDS = {"default": (), "linear": ("factor",), "llama3": _LLAMA3}

_NEUTRAL: dict[str, tuple[Any, ...]] = {
    "quantization_config": (),
    "hidden_activation": ("silu",),
    "attn_logit_softcapping": (),
    "final_logit_softcapping": (),
    "attn_logit_soft_cap": (),
    "final_logit_soft_cap": (),
    "attention_multiplier": (),
    "query_pre_attn_scalar": (),
    "logits_scaling": (1,),
    "logit_scale": (1,),
    "residual_multiplier": (1,),
    "embedding_multiplier": (1,),
    "scale_emb": (1,),
    "scale_depth": (),
    "dim_model_base": (),
    "rope_interleaved": (False,),
    "use_rope": (True,),
    "use_parallel_residual": (False,),
    "parallel_attn": (False,),
    "alibi": (False,),
    "qk_layernorm": (False,),
    "use_qk_norm": (False,),
    "no_rope_layers": ([],),
    "no_rope_layer_interval": (),
    "attention_chunk_size": (),
    "use_bidirectional_attention": (False,),
    "is_decoder": (True, False),  # a note of old files; these classes are always decoders
    "is_encoder_decoder": (False,),
    "add_cross_attention": (False,),
    "num_local_experts": (0, 1),
    "num_experts": (0, 1),
    "n_routed_experts": (0,),
    "vision_config": (),
    "pruned_heads": ({},),
}
"""Fields that change numbers in other families or in copies of these → values that do not."""


def shape_of(config: Mapping[str, Any]) -> ModelShape:
    """Check a config.json, raw or normalised, against what the cpu target computes.

    Raises:
        ModelError: the family is not one of the cpu target's.
        ConfigError: a field is missing, of the wrong kind, or cannot be honoured; `field`,
            `value` and `legal` name it.
    """
    architecture = architecture_of(config)
    if not architecture.cpu:
        names = [a.name for a in ARCHITECTURES.values() if a.cpu]
        raise ModelError(
            f"the cpu target does not run {architecture.name}",
            hint=f"choose a Neuron target with --target, or one of {', '.join(names)}",
            details={"architecture": architecture.name, "supported": names},
        )
    normal = normalise(config)
    _refuse_unsupported(normal)
    heads = _whole(normal, "num_attention_heads")
    key_value = _whole(normal, "num_key_value_heads")
    if heads % key_value:
        raise _refused(
            "num_key_value_heads", key_value, f"a divisor of num_attention_heads {heads}"
        )
    head_dim = _head_dim(normal, heads)
    layers = _whole(normal, "num_hidden_layers")
    attention_bias = _flag(normal, "attention_bias") if "attention_bias" in normal else False
    family = architecture.family
    return ModelShape(
        family=family,
        architecture=architecture.name,
        vocab_size=_whole(normal, "vocab_size"),
        hidden_size=_whole(normal, "hidden_size"),
        intermediate_size=_whole(normal, "intermediate_size"),
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=key_value,
        head_dim=head_dim,
        max_position_embeddings=_whole(normal, "max_position_embeddings"),
        rms_norm_eps=_positive(normal, "rms_norm_eps"),
        hidden_act="silu",
        tie_word_embeddings=_flag(normal, "tie_word_embeddings"),
        # transformers' classes: Qwen2 always has it, Mistral never, whatever the file says
        qkv_bias=family == "qwen2" or (family in ("llama", "qwen3") and attention_bias),
        o_bias=family in ("llama", "qwen3") and attention_bias,
        mlp_bias=family == "llama" and _flag(normal, "mlp_bias"),
        qk_norm=family == "qwen3",
        rope=_rope(normal),
        sliding_windows=_windows(normal, architecture, layers),
    )


def _refuse_unsupported(normal: Mapping[str, Any]) -> None:
    if normal["hidden_act"] not in ("silu", "swish"):
        raise _refused("hidden_act", normal["hidden_act"], ["silu"])
    for field, neutral in _NEUTRAL.items():
        value = normal.get(field)
        if value is not None and value not in neutral:
            raise _refused(field, value, list(neutral) or "absent")


def _head_dim(normal: Mapping[str, Any], heads: int) -> int:
    hidden = _whole(normal, "hidden_size")
    head_dim = _whole(normal, "head_dim")
    if head_dim % 2:
        raise _refused("head_dim", head_dim, "an even number (two halves are rotated)")
    if head_dim * heads != hidden and head_dim == hidden // heads:
        raise _refused("hidden_size", hidden, f"a multiple of num_attention_heads {heads}")
    return head_dim


def _rope(normal: Mapping[str, Any]) -> Rope:
    rope = normal["rope_parameters"]
    kind = rope.get("rope_type")
    if kind not in ROPE_KINDS:
        raise _refused("rope_parameters.rope_type", kind, list(ROPE_KINDS))
    if rope.get("partial_rotary_factor", 1) != 1:
        raise _refused("rope_parameters.partial_rotary_factor", rope["partial_rotary_factor"], [1])
    legal = {"rope_type", "rope_theta", "partial_rotary_factor", *_ROPE_FIELDS[kind]}
    for field in rope:
        if field not in legal:
            if kind == "default" and field in _LLAMA3:
                raise _refused(
                    "rope_parameters.rope_type",
                    kind,
                    ["linear", "llama3"],
                    f"rope_parameters has {field} but its rope_type is {kind}",
                )
            raise _refused(f"rope_parameters.{field}", rope[field], sorted(legal))
    for field in _ROPE_FIELDS[kind]:
        if field not in rope:
            raise _refused(
                f"rope_parameters.{field}",
                None,
                "a number > 0",
                f"rope_parameters.{field} is missing; rope_type {kind} needs it",
            )
    named = {f"rope_parameters.{field}": value for field, value in rope.items()}
    numbers = {f: _positive(named, f"rope_parameters.{f}") for f in _ROPE_FIELDS[kind]}
    original: int | None = None
    if kind == "llama3":
        original = _whole(named, "rope_parameters.original_max_position_embeddings")
        outer = normal.get("original_max_position_embeddings")
        if outer is not None and outer != original:
            raise _refused("original_max_position_embeddings", outer, [original])
        if numbers["high_freq_factor"] <= numbers["low_freq_factor"]:
            raise _refused(
                "rope_parameters.high_freq_factor",
                rope["high_freq_factor"],
                f"> low_freq_factor {rope['low_freq_factor']}",
            )
    return Rope(
        kind=kind,
        theta=_positive(named, "rope_parameters.rope_theta"),
        factor=numbers.get("factor"),
        low_freq_factor=numbers.get("low_freq_factor"),
        high_freq_factor=numbers.get("high_freq_factor"),
        original_max_position_embeddings=original,
    )


def _windows(
    normal: Mapping[str, Any], architecture: Architecture, layers: int
) -> tuple[int | None, ...]:
    """Windows as transformers' classes apply them, which differs by family."""
    family = architecture.family
    window: int | None = None
    if family != "llama" and normal.get("sliding_window") is not None:
        window = _whole(normal, "sliding_window")
    usual = "full_attention" if window is None else "sliding_attention"
    kinds = normal.get("layer_types", [usual] * layers)
    if not isinstance(kinds, (list, tuple)) or len(kinds) != layers:
        raise _refused("layer_types", kinds, f"a list of {layers}, one a layer")
    legal = ["full_attention"] if window is None else ["full_attention", "sliding_attention"]
    if family in ("llama", "mistral"):
        legal = [usual]  # these classes do not read layer_types
    for kind in kinds:
        if kind not in legal:
            raise _refused("layer_types", kind, legal)
    return tuple(window if kind == "sliding_attention" else None for kind in kinds)


def _whole(normal: Mapping[str, Any], field: str) -> int:
    value = normal.get(field)
    whole = isinstance(value, (int, float)) and not isinstance(value, bool) and value % 1 == 0
    if not whole or value < 1:  # type: ignore[operator]
        raise _refused(field, value, "a whole number of at least 1")
    return int(value)  # type: ignore[arg-type]


def _positive(normal: Mapping[str, Any], field: str) -> float:
    value = normal.get(field)
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not number or not 0 < value < float("inf"):  # type: ignore[operator]
        raise _refused(field, value, "a number > 0")
    return float(value)  # type: ignore[arg-type]


def _flag(normal: Mapping[str, Any], field: str) -> bool:
    value = normal.get(field)
    if not isinstance(value, bool):
        raise _refused(field, value, [True, False])
    return value


def _refused(field: str, value: Any, legal: Any, message: str | None = None) -> ConfigError:
    shown = "missing" if value is None else f"{value!r:.120}"
    wanted = ", ".join(map(str, legal)) if isinstance(legal, list) else legal
    return ConfigError(
        message or f"{field} in config.json is {shown}; the cpu target computes {wanted} only",
        field=field,
        value=value,
        legal=legal,
        hint=f"legal for the cpu target: {wanted}; or choose a Neuron target with --target",
    )
