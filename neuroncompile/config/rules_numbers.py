"""Number formats: what a chip computes, what is quantised how, and what the cache holds.

From NxDI 0.9.0 (models/config.py, models/model_wrapper.py, modules/kvcache/kv_cache_manager.py),
NxD 0.18.0 (quantization/quantization_config.py) and the compiler's error codes (NCC_EVRF051,
NCC_EVRF052).
"""

from __future__ import annotations

from neuroncompile.config.rule import Case, Rule

__all__ = ["RULES"]

_KERNELS = ("quantized_mlp_kernel_enabled", "activation_quantization_type")
_KV_METHODS = ("per_tensor_symmetric", "per_key_symmetric", "per_channel_symmetric")


def attention_dtype(case: Case) -> list[str]:
    """Two precisions in one graph need each tensor's declared one."""
    value = case.get("attention_dtype")
    if value in (None, case.get("torch_dtype")) or case.get("cast_type") == "as-declared":
        return []
    raise case.refusal(
        "attention_dtype",
        f"torch_dtype is {case.get('torch_dtype')}, and cast_type {case.get('cast_type')} casts "
        "everything to it",
        [case.get("torch_dtype")],
        "set cast_type=as-declared, or leave attention_dtype out",
    )


def kernel_quantization(case: Case) -> list[str]:
    """The quantised kernels know one scheme, and NxDI sets it whatever was asked."""
    kernel = next((name for name in _KERNELS if case.on(name)), None)
    if kernel is None:
        return []
    for field, only in (
        ("quantization_type", "per_channel_symmetric"),
        ("quantization_dtype", "f8e4m3"),
    ):
        if case.given(field) and case.get(field) != only:
            raise case.refusal(
                field,
                f"with {kernel} NxD Inference sets it to {only}",
                only,
                f"set {field}={only}, or leave it out",
            )
    return []


def modules_to_not_convert(case: Case) -> list[str]:
    """The QKV kernels read unquantised weights, so those must be named."""
    field = "modules_to_not_convert"
    cause = next((name for name in ("quantized", *_KERNELS) if case.on(name)), None)
    if cause is None or case.on(field):
        return []
    kernel = next((n for n in ("qkv_kernel_enabled", "qkv_nki_kernel_enabled") if case.on(n)), None)
    if kernel is None:
        return [f"{cause} without {field}: every linear layer is taken to be quantised"]
    raise case.refusal(
        field,
        f"{kernel} with {cause} needs the list of layers whose weights are not quantised",
        "a list of module names",
        f"set {field}, for example to [lm_head, self_attn]",
    )


def quantization_blocks(case: Case) -> list[str]:
    """Blockwise scales need the block, other schemes have none."""
    kind = case.get("quantization_type")
    blocks = ("quantization_block_size", "quantization_block_axis")
    if kind == "blockwise_symmetric":
        if not case.on("quantized"):
            return []
        for field in blocks:
            if case.get(field) is None:
                raise case.refusal(
                    field,
                    "quantization_type blockwise_symmetric needs it",
                    "a whole number or a list of them",
                    f"set {field}, for example to "
                    + ("[128, 128]" if field.endswith("size") else "[0, 1]"),
                )
        sizes, axes = (case.get(field) for field in blocks)
        if _count(sizes) != _count(axes):
            raise case.refusal(
                "quantization_block_axis",
                f"it names {_count(axes)} axes for {_count(sizes)} block sizes",
                f"{_count(sizes)} axes",
                "give one axis for each block size",
            )
        return []
    given = next((field for field in blocks if case.given(field)), None)
    if given is not None:
        raise case.refusal(
            given,
            f"quantization_type {kind} has no blocks",
            "unset",
            f"set quantization_type=blockwise_symmetric, or leave {given} out",
        )
    return []


def expert_scales(case: Case) -> list[str]:
    """Scales for each expert need experts."""
    kind = case.get("quantization_type")
    experts = case.model.get("num_local_experts") or case.model.get("num_experts")
    if kind != "expert_wise_per_channel_symmetric" or experts or not case.model:
        return []
    if not (case.on("quantized") and case.given("quantization_type")):
        return []
    raise case.refusal(
        "quantization_type",
        "this model has no experts",
        ["per_tensor_symmetric", "per_channel_symmetric", "blockwise_symmetric"],
        "use per_channel_symmetric",
    )


def fp8_weights(case: Case) -> list[str]:
    """Before trn3 the chips' e4m3 is IEEE-like and ends at 240, not OCP's that ends at 448."""
    if not any(case.on(name) for name in ("quantized", *_KERNELS)):
        return []
    dtype = case.get("quantization_dtype")
    if dtype in ("f4e2m1fn_x4", "f8e4m3fn_x4", "f8e5m2_x4") and case.target.platform != "trn3":
        raise case.refusal(
            "quantization_dtype",
            f"{case.target.platform} has no microscaled formats (OCP MX); trn3 has",
            ["int8", "f8e4m3", "f8e5m2"],
            "use f8e4m3, or target trn3",
        )
    if dtype == "f8e4m3fn" and case.target.platform != "trn3":
        return [
            f"quantization_dtype f8e4m3fn: {case.target.platform} computes e4m3 up to 240, not "
            "448; scales made for OCP FP8 overflow unless they are rescaled"
        ]
    return []


def microscaling(case: Case) -> list[str]:
    """MXFP4 arithmetic came with NeuronCore v4."""
    if case.on("is_mxfp4_compute") and case.target.platform != "trn3":
        raise case.refusal(
            "is_mxfp4_compute",
            f"{case.target.platform} does not compute in MXFP4; trn3 does",
            False,
            "leave is_mxfp4_compute out, or target trn3",
        )
    return []


def kv_quantization(case: Case) -> list[str]:
    """The compiler flag and the graph's cache type come from two keywords since 0.8."""
    if case.nxdi is not None and case.nxdi < (0, 8):
        return []  # kv_cache_quant alone does it there, and the other is refused as unknown
    flag, table = case.on("kv_cache_quant"), case.on("kv_quant_config")
    if flag and not table:
        raise case.refusal(
            "kv_cache_quant",
            "alone it changes a compiler flag and leaves the cache as it is",
            "false, or with kv_quant_config",
            "set kv_quant_config.direct_cast=true too, or leave kv_cache_quant out",
        )
    if table and not flag:
        raise case.refusal(
            "kv_quant_config",
            "the compiler's FP8 flag comes with kv_cache_quant only",
            "unset, or with kv_cache_quant",
            "set kv_cache_quant=true too, or leave kv_quant_config out",
        )
    return _kv_methods(case) if table else []


def _kv_methods(case: Case) -> list[str]:
    direct = case.get("kv_quant_config.direct_cast")
    for field in ("kv_quant_config.k_quant_method", "kv_quant_config.v_quant_method"):
        legal = _KV_METHODS[:1] if direct else _KV_METHODS
        if case.get(field) not in legal:
            raise case.refusal(
                field,
                "direct_cast has no scales" if direct else "the cache knows no such scales",
                list(legal),
                f"set {field} to {legal[0]}"
                + (", or kv_quant_config.direct_cast=false" if direct else ""),
            )
    dtype = case.get("kv_quant_config.quant_dtype")
    if dtype not in ("float8_e4m3fn", "float8_e5m2"):
        raise case.refusal(
            "kv_quant_config.quant_dtype",
            "a quantised cache is FP8",
            ["float8_e4m3fn", "float8_e5m2"],
            "use float8_e4m3fn",
        )
    if dtype == "float8_e4m3fn" and not direct and case.target.platform != "trn3":
        return [
            f"kv_quant_config: {case.target.platform} computes e4m3 up to 240; scales made for "
            "448 overflow"
        ]
    return []


def padded_sizes(case: Case) -> list[str]:
    """Padding only ever adds."""
    for field, own in (
        ("padded_hidden_size", "hidden_size"),
        ("padded_intermediate_size", "intermediate_size"),
    ):
        asked, size = case.get(field), case.model.get(own)
        if asked is not None and isinstance(size, int) and asked < size:
            raise case.refusal(
                field,
                f"the model's {own} is {size}",
                f">= {size}",
                f"set {field} to {size} or more",
            )
    return []


def _count(value: object) -> int:
    return len(value) if isinstance(value, list | tuple) else 1


RULES: tuple[Rule, ...] = (
    attention_dtype,
    kernel_quantization,
    modules_to_not_convert,
    quantization_blocks,
    expert_scales,
    fp8_weights,
    microscaling,
    kv_quantization,
    padded_sizes,
)
