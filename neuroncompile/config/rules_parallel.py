"""Degrees of parallelism against each other, against batches, heads and experts.

From NxDI 0.9.0: models/config.py (`validate_attention_data_parallel`), models/model_base.py,
modules/attention/utils.py, modules/flashdecode/utils.py, modules/moe_v2.py.
"""

from __future__ import annotations

from neuroncompile.config.rule import Case, Rule

__all__ = ["RULES"]


def attention_data_parallel(case: Case) -> list[str]:
    """attention_dp_degree splits the ranks and the decode batch evenly."""
    degree = case.get("attention_dp_degree")
    if degree == 1:
        return []
    field = "attention_dp_degree"
    for name in ("tp_degree", "tkg_batch_size"):
        if case.get(name) % degree:
            raise case.refusal(
                field,
                f"it does not divide {name}, {case.get(name)}",
                f"a divisor of {case.get(name)}",
                f"choose a divisor, or change {name}",
            )
    context = case.get("cp_degree")
    if context > 1 and context % degree:
        raise case.refusal(
            field,
            f"with context parallelism it must divide cp_degree, {context}",
            f"a divisor of {context}",
            "lower attention_dp_degree or raise cp_degree",
        )
    derived = case.get("tkg_batch_size") // degree
    for name, value in (("kv_cache_batch_size", derived), ("kv_cache_padding_size", None)):
        if case.given(name) and case.get(name) != value:
            raise case.refusal(
                name,
                "NxD Inference overwrites it when attention_dp_degree is above 1"
                + (f" (with {value})" if value is not None else ""),
                value if value is not None else "unset",
                f"leave {name} out",
            )
    return []


def attention_data_parallel_heads(case: Case) -> list[str]:
    """Each rank keeps as many key-value heads in decoding as in context encoding."""
    heads = case.model.get("num_key_value_heads")
    degree, world = case.get("attention_dp_degree"), case.get("world_size")
    if degree == 1 or not isinstance(heads, int):
        return []
    if case.get("cp_degree") == 1:
        fits = max(heads // max(world // degree, 1), 1) == max(heads // world, 1)
    else:
        fits = _decode_parts_fit(heads, world, case.get("cp_degree"), degree)
    if fits:
        return []
    raise case.refusal(
        "attention_dp_degree",
        f"of the {heads} key-value heads a rank of world_size {world} would hold more while "
        "decoding than while encoding, which NxD Inference does not run",
        f"at most {max(world // heads, 1)}",
        "lower attention_dp_degree or raise tp_degree",
    )


def _decode_parts_fit(heads: int, world: int, context: int, degree: int) -> bool:
    """Whether the copies of each head made while encoding serve every part of decoding."""
    if context == degree:
        return True
    ranks = world // degree
    copies = max(world // context // heads, 1) * context
    return ranks >= heads and copies >= max(ranks // heads, 1) * degree


def cache_update(case: Case) -> list[str]:
    """In parts of a batch the decode kernel writes the cache in its cascaded form only."""
    kernel = "attn_block_tkg_nki_kernel_cache_update"
    if not (case.on("attention_dp_degree") and case.on(kernel)):
        return []
    cascaded = "attn_block_tkg_nki_kernel_cascaded_attention"
    if case.on(cascaded) and case.target.platform not in ("trn1", "trn1n", "inf2"):
        return []
    raise case.refusal(
        kernel,
        f"with attention_dp_degree it needs {cascaded} on trn2 or newer",
        f"false, or with {cascaded}",
        f"set {cascaded}=true, or leave {kernel} out",
    )


def context_parallel_heads(case: Case) -> list[str]:
    """Context parallelism decodes on all ranks, each with at most one key-value head."""
    heads, degree = case.model.get("num_key_value_heads"), case.get("cp_degree")
    if degree == 1 or case.on("attention_dp_degree") or not isinstance(heads, int):
        return []
    if case.get("world_size") >= heads:
        return []
    raise case.refusal(
        "cp_degree",
        f"world_size {case.get('world_size')} is below the {heads} key-value heads",
        f"1, or with tp_degree {heads} or more",
        f"raise tp_degree to {heads} or leave cp_degree out",
    )


def expert_dispatch(case: Case) -> list[str]:
    """Reduce-scatter splits the batch over the ranks."""
    batch = case.get("tkg_batch_size")
    if case.get("ep_dispatch_cc_option") == "RS_AG" and case.get("tp_degree") > batch:
        raise case.refusal(
            "ep_dispatch_cc_option",
            f"tp_degree {case.get('tp_degree')} exceeds tkg_batch_size {batch}",
            ["AR_AG", "AG_AR"],
            f"use AR_AG, or a batch_size of {case.get('tp_degree')} or more",
        )
    return []


def flash_decoding(case: Case) -> list[str]:
    """The ranks that share a key-value head split its cache along the sequence."""
    heads = case.model.get("num_key_value_heads")
    if not case.on("flash_decoding_enabled") or not isinstance(heads, int):
        return []
    degree = case.get("tp_degree")
    sharing = min(degree, case.model.get("num_attention_heads") or degree)
    if degree % heads or sharing % heads:
        raise case.refusal(
            "flash_decoding_enabled",
            f"tp_degree {degree} is no multiple of the {heads} key-value heads",
            f"false, or tp_degree {heads}, {2 * heads}, …",
            f"set tp_degree to {2 * heads} or leave flash_decoding_enabled out",
        )
    group, length = sharing // heads, case.get("max_length")
    if group == 1:
        return [
            f"flash_decoding_enabled gains nothing at tp_degree {degree}: no ranks share a head"
        ]
    if length % group:
        raise case.refusal(
            "flash_decoding_enabled",
            f"{group} ranks share a cache of {case.said(case.length)}, which they do not divide",
            f"a length that is a multiple of {group}",
            f"set seq_len to {-(-length // group) * group}",
        )
    return []


def sequence_parallel(case: Case) -> list[str]:
    """Every context-encoding bucket is split evenly over the ranks."""
    degree = case.get("tp_degree")
    if not case.on("sequence_parallel_enabled") or case.on("chunked_prefill_config"):
        return []
    lengths = case.config.get("context_encoding_buckets") or [case.get("max_context_length")]
    odd = [length for length in lengths if isinstance(length, int) and length % degree]
    if odd:
        raise case.refusal(
            "sequence_parallel_enabled",
            f"tp_degree {degree} does not divide {odd[0]} of context_encoding_buckets",
            f"buckets that are multiples of {degree}",
            f"end context_encoding_buckets with multiples of {degree}, or leave "
            "sequence_parallel_enabled out",
        )
    return []


def compiler_target(case: Case) -> list[str]:
    """NxDI's own words for where it compiles to agree with the target."""
    own, platform = case.get("target"), case.target.platform
    if own is not None and own != platform:
        raise case.refusal(
            "target",
            f"this build is for {platform}",
            [platform],
            f"leave target out, or build with --target {own}",
        )
    if case.on("on_cpu"):
        raise case.refusal(
            "on_cpu",
            f"it selects NxD Inference's path for CPUs, and this build is for {platform}",
            False,
            "leave on_cpu out, or build with --target cpu",
        )
    return []


def half_a_device(case: Case) -> list[str]:
    """Reports disagree whether a trn2.3xlarge runs two of its four logical cores."""
    half = case.target.lnc == 2 and case.get("tp_degree") == 2
    if case.target.instance != "trn2.3xlarge" or not half:
        return []
    return [
        "tp_degree is 2 on trn2.3xlarge: the runtime has been reported to take one core or the "
        "whole device (4) only"
    ]


def ranks(case: Case) -> list[str]:
    """world_size, and the part of it that this host builds."""
    world = case.get("world_size")
    product = case.get("tp_degree") * case.get("pp_degree") * case.get("ep_degree")
    if world % product:
        raise case.refusal(
            "world_size",
            f"it is no multiple of tp_degree x pp_degree x ep_degree, {product}",
            product,
            f"leave world_size out, or set it to {product}",
        )
    first, count = case.get("start_rank_id"), case.get("local_ranks_size")
    if first + count > world:
        field = "local_ranks_size" if case.given("local_ranks_size") else "start_rank_id"
        raise case.refusal(
            field,
            f"ranks {first} to {first + count - 1} reach beyond world_size {world}",
            f"start_rank_id + local_ranks_size <= {world}",
            "lower start_rank_id or local_ranks_size",
        )
    if case.get("pp_degree") > 1:
        return [
            f"pp_degree is {case.get('pp_degree')}; pipeline parallelism is untested in "
            "NxD Inference"
        ]
    return []


def experts(case: Case) -> list[str]:
    """Mixture-of-experts degrees, plain and hybrid, divide the ranks and the experts."""
    count = case.model.get("num_local_experts") or case.model.get("num_experts")
    world, warnings = case.get("world_size"), []
    for tensor, expert in _expert_degrees(case):
        product, groups = case.get(tensor) * case.get(expert), case.get(expert)
        beside = ", ".join(case.config.get("hybrid_sharding_config", ()))
        beside = f" (the table sets {beside})" if beside else ""
        if world % product:
            raise case.refusal(
                expert if groups != 1 else tensor,
                f"{tensor} x {expert} is {product}, which does not divide the {world} ranks"
                f"{beside}",
                f"{tensor} x {expert} = {world}",
                f"set {tensor} to {world} and {expert} to 1, or factors of it",
            )
        if product < world:
            warnings.append(
                f"{tensor} x {expert} is {product} on {world} ranks: each expert is held "
                f"{world // product} times{beside}"
            )
        if isinstance(count, int) and count % groups:
            raise case.refusal(
                expert,
                f"it does not divide the model's {count} experts",
                f"a divisor of {count}",
                f"choose a divisor of {count}",
            )
    return warnings


def _expert_degrees(case: Case) -> list[tuple[str, str]]:
    if case.on("hybrid_sharding_config"):
        prefix = "hybrid_sharding_config.moe_"
        return [
            (f"{prefix}{stage}_tp_degree", f"{prefix}{stage}_ep_degree") for stage in ("cte", "tkg")
        ]
    # With one expert group NxDI uses the plain tensor-parallel ranks and reads moe_tp_degree
    # for padding only.
    return [("moe_tp_degree", "moe_ep_degree")] if case.on("moe_ep_degree") else []


RULES: tuple[Rule, ...] = (
    compiler_target,
    half_a_device,
    ranks,
    attention_data_parallel,
    attention_data_parallel_heads,
    cache_update,
    context_parallel_heads,
    expert_dispatch,
    flash_decoding,
    sequence_parallel,
    experts,
)
