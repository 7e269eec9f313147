"""What one model family cannot do, overwrites, or pins; and keywords that NxDI is giving up.

From NxDI 0.9.0: models/<family>/modeling_<family>.py, models/image_to_text_model_base.py and the
deprecations of models/config.py.
"""

from __future__ import annotations

from neuroncompile.config.rule import Case, Rule

__all__ = ["DEPRECATED", "RULES"]

_GATED_ONLY = ("mixtral", "dbrx", "qwen3_moe")
_IMAGE_TO_TEXT = ("llama4", "llava", "pixtral", "qwen2_vl", "qwen3_vl")
_OWN_ATTENTION = ("qwen2", "qwen3", "mistral", "gemma3", "gemma3_text", "qwen2_vl", "qwen3_vl")

DEPRECATED = {
    "mlp_tkg_nki_kernel_enabled": "mlp_kernel_enabled",
    "attn_tkg_nki_kernel_enabled": "attn_block_tkg_nki_kernel_enabled",
    "attn_tkg_builtin_kernel_enabled": "attn_block_tkg_nki_kernel_enabled",
    "attn_block_cte_nki_kernel_enabled": "qkv_kernel_enabled, qkv_nki_kernel_enabled, "
    "attn_kernel_enabled and out_proj_kernel_enabled",
}
"""Old keyword → what NxDI switches on in its place, with a warning nobody reads."""


def deprecated(case: Case) -> list[str]:
    """Old names still work, for now."""
    warnings = []
    for name, now in DEPRECATED.items():
        if not case.on(name):
            continue
        if name == "attn_block_cte_nki_kernel_enabled" and case.get("attn_kernel_enabled") is False:
            raise case.refusal(
                "attn_kernel_enabled",
                f"{name} would switch it on",
                True,
                f"leave {name} out, or set attn_kernel_enabled=true",
            )
        if now in case.config and case.config[now] is False:
            raise case.refusal(
                now, f"{name} would switch it on", True, f"leave {name} out, or set {now}=true"
            )
        warnings.append(f"{name} is deprecated in NxD Inference; set {now} instead")
    return warnings


def gated_experts(case: Case) -> list[str]:
    """Their weights are converted to gated experts, whatever the keyword says."""
    if case.family in _GATED_ONLY and case.get("glu_mlp") is False:
        raise case.refusal(
            "glu_mlp", f"the experts of {case.family} are gated", True, "leave glu_mlp out"
        )
    return []


def no_speculation(case: Case) -> list[str]:
    """Mllama and Llama 4 have a decoder loop of their own, or none for drafts."""
    if case.family not in ("mllama", "llama4", "llama4_text"):
        return []
    for name in ("is_medusa", "speculation_length"):
        if case.on(name):
            raise case.refusal(
                name,
                f"NxD Inference has no speculation for {case.family}",
                "off",
                f"leave {name} out",
            )
    return []


def image_to_text(case: Case) -> list[str]:
    """The text part of a vision model has fewer features than the same text model alone."""
    if case.family not in _IMAGE_TO_TEXT:
        return []
    barred = [
        "is_block_kv_layout",
        "is_prefix_caching",
        "chunked_prefill_config",
        "is_medusa",
        "enable_fused_speculation",
    ]
    if case.family == "qwen3_vl":
        barred += ["attention_dp_degree", "cp_degree"]
    for name in barred:
        if case.on(name):
            raise case.refusal(
                name,
                f"NxD Inference does not have it for {case.family}",
                "off",
                f"leave {name} out",
            )
    return []


def text_and_vision(case: Case) -> list[str]:
    """The text part's keywords stand at the top; its own table must not say otherwise."""
    text = case.get("text_neuron_config")
    for name, value in (text or {}).items():
        if name in case.config and case.config[name] != value:
            field = f"text_neuron_config.{name}"
            raise case.refusal(
                field,
                f"{name} is {case.config[name]!r} ({case.origin(name)})",
                case.config[name],
                f"set {name} at the top, and leave {field} out",
            )
    if case.family == "qwen2_vl" and case.on("vision_neuron_config"):
        if case.get("vision_neuron_config.fused_qkv") is not True:
            raise case.refusal(
                "vision_neuron_config.fused_qkv",
                "Qwen2-VL's vision part has fused projections only",
                True,
                "set vision_neuron_config.fused_qkv=true",
            )
        for name in (
            "sequence_parallel_enabled",
            "flash_decoding_enabled",
            "qkv_kernel_enabled",
            "attn_block_tkg_nki_kernel_cache_update",
            "attn_block_tkg_nki_kernel_enabled",
        ):
            if case.get(f"vision_neuron_config.{name}"):
                raise case.refusal(
                    f"vision_neuron_config.{name}",
                    "NxD Inference switches it off in Qwen2-VL's vision part",
                    False,
                    f"leave vision_neuron_config.{name} out",
                )
    return []


def pinned(case: Case) -> list[str]:
    """Values that a family's class overwrites after it has read them."""
    fixed: list[tuple[str, object]] = []
    if case.family == "qwen3_moe":
        fixed += [
            ("router_config.dtype", "float32"),
            ("router_config.act_fn", "softmax"),
            ("disable_numeric_cc_token", True),
            ("disable_normalize_top_k_affinities", False),
        ]
    for name, only in fixed:
        top = name.partition(".")[0]
        if case.given(top) and case.get(name) not in (None, only):
            raise case.refusal(
                name,
                f"NxD Inference sets it to {only} for {case.family}",
                only,
                f"leave {name} out",
            )
    if case.family in _OWN_ATTENTION and case.given("attn_cls"):
        raise case.refusal(
            "attn_cls",
            f"NxD Inference puts the attention of {case.family} in its place",
            "unset",
            "leave attn_cls out",
        )
    if case.on("disable_normalize_top_k_affinities"):
        return [
            "disable_normalize_top_k_affinities is lost when NxD Inference reads its own "
            "neuron_config.json again: load with a config built anew"
        ]
    return []


def chunked_attention(case: Case) -> list[str]:
    """Attention in chunks (Llama 4) excludes most other attention features."""
    chunk = case.model.get("attention_chunk_size")
    if not isinstance(chunk, int) or chunk >= case.get("seq_len"):
        return []
    for name in (
        "flash_decoding_enabled",
        "attn_tkg_builtin_kernel_enabled",
        "attn_tkg_nki_kernel_enabled",
        "is_prefix_caching",
        "chunked_prefill_config",
        "attention_dp_degree",
    ):
        if case.on(name):
            raise case.refusal(
                name,
                f"the model attends in chunks of {chunk}, and seq_len is {case.get('seq_len')}",
                "off",
                f"leave {name} out, or set seq_len to {chunk} or less",
            )
    if case.get("padding_side") != "right":
        raise case.refusal(
            "padding_side", f"the model attends in chunks of {chunk}", "right", "set it to right"
        )
    degree = case.get("cp_degree")
    if chunk % degree or (case.get("seq_len") % chunk) % degree:
        raise case.refusal(
            "cp_degree",
            f"it divides neither every chunk of {chunk} nor what is left of seq_len",
            f"a divisor of {chunk}",
            "choose a divisor of both, or a seq_len that is a multiple of the chunk",
        )
    return []


def windows_of_trn1(case: Case) -> list[str]:
    """The attention kernel of trn1 has no window (modules/attention/attention_base.py)."""
    if (
        case.model.get("sliding_window")
        and case.target.platform in ("trn1", "trn1n", "inf2")
        and case.get("attn_kernel_enabled")
    ):
        raise case.refusal(
            "attn_kernel_enabled",
            f"the model has a sliding window, which the kernel lacks on {case.target.platform}",
            False,
            "leave attn_kernel_enabled out",
        )
    return []


RULES: tuple[Rule, ...] = (
    deprecated,
    gated_experts,
    no_speculation,
    image_to_text,
    text_and_vision,
    pinned,
    chunked_attention,
    windows_of_trn1,
)
