"""Combinations that cannot work: what holds for every target, and the door to NxDI's own rules.

Single values were checked when their layer was merged (`legal`). Each rule is one function over
the effective config; it raises with field, value and legal values, or returns warnings. Those of
NxD Inference (`rules_*`) and of its releases (`versions`, `windows`) are for Neuron targets only,
and only imported there.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from neuroncompile.config.rule import Case, Rule
from neuroncompile.config.toolchain import Toolchain
from neuroncompile.config.values import NeuronConfig
from neuroncompile.errors import ConfigError
from neuroncompile.hardware.targets import INSTANCES, Target, legal_tp_degrees

__all__ = ["check_config"]


def check_config(
    config: NeuronConfig,
    *,
    model: Mapping[str, Any],
    target: Target | None = None,
    toolchain: Toolchain | None = None,
    allow_head_padding: bool = False,
) -> tuple[str, ...]:
    """Refuse what cannot run; return warnings, one line each.

    Args:
        model: normalised Hugging Face config.
        target: default `config.target`.
        toolchain: with one, its SDK's known windows are checked too.
        allow_head_padding: consent to attention heads of zeros.

    Raises:
        ConfigError: with field, value and legal values.
    """
    target = target or config.target
    packages = toolchain.packages if toolchain is not None and not target.is_cpu else None
    case = Case(config, model, target)
    released: list[str] = []
    if packages is not None:  # first: what an SDK does not run at all needs no further finding
        from neuroncompile.config.windows import check_windows

        released = check_windows(
            config, family=model.get("model_type"), target=target, packages=packages
        )
    warnings = [line for rule in RULES for line in rule(case)]
    if not target.is_cpu:
        warnings += _nxdi(case, packages)
    warnings += _heads(case, allow_head_padding)
    return (*warnings, *released)


def _nxdi(case: Case, packages: Mapping[str, str] | None) -> list[str]:
    from neuroncompile.config import (
        rules_cache,
        rules_family,
        rules_numbers,
        rules_pairs,
        rules_parallel,
        rules_serving,
        rules_speculation,
    )
    from neuroncompile.config.versions import check_versions, nxdi_version

    if packages is not None:
        case.nxdi = nxdi_version(packages)
        check_versions(case.config, case.nxdi)
    warnings = []
    for topic in (
        rules_pairs,
        rules_cache,
        rules_parallel,
        rules_numbers,
        rules_speculation,
        rules_serving,
        rules_family,
    ):
        for rule in topic.RULES:
            warnings += rule(case)
    return warnings


def _lengths(case: Case) -> list[str]:
    config, positions = case.config, case.model.get("max_position_embeddings")
    for field in ("seq_len", "max_length"):
        if isinstance(positions, int) and config.get(field, 1) > positions:
            raise case.refusal(
                field,
                f"the model has {positions} positions",
                f"1 to {positions}",
                f"set {field} to {positions} or less",
            )
    length = config.get("max_length", config["seq_len"])
    if config["max_context_length"] > length:
        raise case.refusal(
            "max_context_length",
            f"it cannot exceed the whole length, {case.said(case.length)}",
            f"1 to {length}",
            f"set max_context_length to {length} or less, or raise {case.length}",
        )
    answer = config.get("max_new_tokens")
    if answer is not None and not 0 < answer < length:
        # NxDI takes 0 for unset and compares the rest with nothing.
        raise case.refusal(
            "max_new_tokens",
            "NxD Inference takes 0 for unset"
            if not answer
            else f"a prompt and its answer share {case.said(case.length)}",
            f"1 to {length - 1}",
            "leave max_new_tokens out, or lower it",
        )
    return []


def _buckets(case: Case) -> list[str]:
    config, warnings = case.config, []
    length = config.get("max_length", config["seq_len"])
    for field, limit, what in (
        ("context_encoding_buckets", config["max_context_length"], "max_context_length"),
        ("token_generation_buckets", length, case.length),
    ):
        listed = config.get(field)
        if listed is None or not case.given(field):
            continue
        if not config["enable_bucketing"]:
            raise case.refusal(
                field,
                "NxDI ignores it unless enable_bucketing is true",
                "unset",
                f"set enable_bucketing=true, or --set {field}=null",
            )
        widths = [item if isinstance(item, int) else item[0] for item in listed]
        if len(set(map(str, listed))) != len(listed):
            raise case.refusal(
                field, "a bucket stands twice", "each bucket once", "leave the second out"
            )
        if max(widths) > limit:
            raise case.refusal(
                field,
                f"the largest exceeds {case.said(what)}",
                f"1 to {limit}",
                f"end the list with {limit}, or --set {field}=null to derive it",
            )
        if max(widths) < limit:
            warnings.append(
                f"{field} ends at {max(widths)}, below {what} {limit}: "
                "longer sequences will be refused at run time"
            )
    return warnings


def _batches(case: Case) -> list[str]:
    config = case.config
    blocks = config.get("is_block_kv_layout")  # those prompts go to blocks, not to rows
    if config["is_continuous_batching"] and config["batch_size"] > 1 and not blocks:
        if config["ctx_batch_size"] != 1:
            raise case.refusal(
                "ctx_batch_size",
                "continuous batching encodes one prompt at a time",
                1,
                "set ctx_batch_size to 1, or is_continuous_batching to false",
            )
    elif config["ctx_batch_size"] > config["batch_size"]:
        raise case.refusal(
            "ctx_batch_size",
            f"it cannot exceed batch_size, {config['batch_size']}",
            f"1 to {config['batch_size']}",
            "lower ctx_batch_size or raise batch_size",
        )
    widths = config.get("token_generation_batches")
    if (
        widths is not None
        and max([widths] if isinstance(widths, int) else widths) > (config["tkg_batch_size"])
    ):
        raise case.refusal(
            "token_generation_batches",
            f"the largest exceeds tkg_batch_size, {config['tkg_batch_size']}",
            f"1 to {config['tkg_batch_size']}",
            "lower it or raise batch_size",
        )
    return []


def _blocks(case: Case) -> list[str]:
    length, size = case.config["seq_len"], case.config.get("pa_block_size")
    if case.config.get("is_block_kv_layout") and size is not None and length % size:
        raise case.refusal(
            "seq_len",
            f"it is no multiple of pa_block_size, {size}",
            f"multiples of {size}",
            f"set seq_len to {-(-length // size) * size}",
        )
    return []


def _dtype(case: Case) -> list[str]:
    dtype, own = case.config["torch_dtype"], case.model.get("dtype")
    legal = ["float32", "bfloat16", "float16"]
    if dtype not in legal:
        # trn1 to trn2 have no e4m3fn at all, and as the dtype of everything it is unusable:
        # FP8 weights are quantization_dtype, an FP8 cache is kv_quant_config.
        raise case.refusal(
            "torch_dtype",
            f"{case.target.platform} supports {', '.join(legal)}",
            legal,
            "use bfloat16"
            if case.target.is_cpu
            else "use bfloat16, and quantized=true with quantization_dtype for FP8 weights",
        )
    if case.config.get("overrides_torch_dtype") is False and own not in (None, dtype):
        raise case.refusal(
            "overrides_torch_dtype",
            f"the checkpoint's {own} would take the place of torch_dtype {dtype}",
            True,
            f"set torch_dtype={own}, or leave overrides_torch_dtype out",
        )
    if dtype == "float16" and own in ("bfloat16", "float32"):
        return [f"torch_dtype float16 overflows above 65504, and {own} does not"]
    return []


def _topology(case: Case) -> list[str]:
    degree, target = case.config["tp_degree"], case.target
    if degree % case.config.get("cp_degree", 1):
        raise case.refusal(
            "tp_degree",
            f"cp_degree {case.config['cp_degree']} does not divide it",
            f"multiples of {case.config['cp_degree']}",
            "choose a cp_degree that divides tp_degree",
        )
    legal = legal_tp_degrees(target)
    if legal is None:
        return []
    if degree not in legal and not _spans_nodes(degree, target):
        shown = ", ".join(map(str, legal))
        where = f"the runtime of {target.text} (LNC {target.lnc}) runs {shown}"
        if target.platform in ("trn1", "trn1n") and target.instance is None:
            where += " or a multiple of 32"
        raise case.refusal("tp_degree", where, list(legal), f"set tp_degree to one of {shown}")
    if target.instance:
        return _instance_size(case, target)
    return []


def _spans_nodes(degree: int, target: Target) -> bool:
    """trn1 groups whole nodes of 32 cores; an instance name says that there is one."""
    return target.platform in ("trn1", "trn1n") and not target.instance and degree % 32 == 0


def _instance_size(case: Case, target: Target) -> list[str]:
    cores = INSTANCES[str(target.instance)].logical_cores(target.lnc or 1)
    world = case.get("world_size")
    # A program that spans instances builds and loads its own part of the ranks on each.
    count = case.get("local_ranks_size")
    if count > cores:
        degrees = ("ep_degree", "pp_degree", "local_ranks_size", "world_size")
        field = next((name for name in degrees if case.given(name)), "tp_degree")
        raise ConfigError(
            f"the program needs {world} cores, {field} is {case.get(field)!r}; {target.instance} "
            f"has {cores} at LNC {target.lnc}",
            field=field,
            value=case.get(field),
            legal=f"tp_degree x pp_degree x ep_degree <= {cores}",
            hint="lower a degree or choose a larger instance",
        )
    return []


def _unused(case: Case) -> list[str]:
    return [
        f"{name} changes nothing but the key: nothing reads it, or NxD Inference derives it anew"
        for name in UNUSED
        if name in case.config
    ]


def _heads(case: Case, allow_padding: bool) -> list[str]:
    query = case.model.get("num_attention_heads")
    if not isinstance(query, int) or case.config["tp_degree"] == 1:
        return []
    from neuroncompile.config.heads import shard_heads

    key_value = case.model.get("num_key_value_heads")
    heads = shard_heads(query, key_value or query, case.config["tp_degree"])
    if heads.is_padded and not allow_padding:
        fits = [n for n in range(1, query + 1) if query % n == 0]
        legal = legal_tp_degrees(case.target)
        fits = [n for n in fits if legal is None or n in legal]
        raise case.refusal(
            "tp_degree",
            f"it does not divide {query} attention heads; they would be padded ({heads.note})",
            fits,
            f"set tp_degree to one of {', '.join(map(str, fits))}, or consent with "
            "--allow-head-padding",
        )
    return [heads.note] if heads.note else []


UNUSED = (
    "n_active_tokens",
    "n_positions",
    "buckets",
    "bucket_n_active_tokens",
    "seq_len_threshold_for_cc_tiling",
    "enable_cte_modular_flow",
)
"""Keywords without effect in a decoder: each graph gets its own values (models/model_base.py)."""

RULES: tuple[Rule, ...] = (_lengths, _buckets, _batches, _blocks, _dtype, _topology, _unused)
