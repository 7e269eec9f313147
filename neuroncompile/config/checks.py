"""Combinations that NxDI would assert on, or that only the runtime would refuse.

Single values were checked when their layer was merged (`legal`). Each rule here is one function
over the effective config; it raises with field, value and legal values, or returns warnings.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from neuroncompile.config.heads import shard_heads
from neuroncompile.config.toolchain import Toolchain
from neuroncompile.config.values import NeuronConfig
from neuroncompile.errors import ConfigError
from neuroncompile.hardware.targets import INSTANCES, Target, legal_tp_degrees

__all__ = ["check_config"]

Rule = Callable[[NeuronConfig, Mapping[str, Any], Target], list[str]]


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
    warnings = [line for rule in RULES for line in rule(config, model, target)]
    warnings += _heads(config, model, allow_head_padding)
    if toolchain is not None and not target.is_cpu:
        from neuroncompile.config.windows import check_windows

        warnings += check_windows(
            config, family=model.get("model_type"), target=target, packages=toolchain.packages
        )
    return tuple(warnings)


def _refuse(field: str, config: NeuronConfig, message: str, legal: Any, hint: str) -> ConfigError:
    return ConfigError(
        f"{field} is {config[field]!r} ({config.origin(field)}); {message}",
        field=field,
        value=config[field],
        legal=legal,
        hint=hint,
    )


def _lengths(config: NeuronConfig, model: Mapping[str, Any], target: Target) -> list[str]:
    positions = model.get("max_position_embeddings")
    for field in ("seq_len", "max_length"):
        if isinstance(positions, int) and config.get(field, 1) > positions:
            raise _refuse(
                field,
                config,
                f"the model has {positions} positions",
                f"1 to {positions}",
                f"set {field} to {positions} or less",
            )
    length = config.get("max_length", config["seq_len"])
    if config["max_context_length"] > length:
        raise _refuse(
            "max_context_length",
            config,
            f"it cannot exceed the whole length, {length}",
            f"1 to {length}",
            f"set max_context_length to {length} or less, or raise seq_len",
        )
    return []


def _buckets(config: NeuronConfig, model: Mapping[str, Any], target: Target) -> list[str]:
    warnings = []
    length = config.get("max_length", config["seq_len"])
    for field, limit, what in (
        ("context_encoding_buckets", config["max_context_length"], "max_context_length"),
        ("token_generation_buckets", length, "seq_len"),
    ):
        listed = config.get(field)
        if listed is None or config.origin(field).startswith("default"):
            continue
        if not config["enable_bucketing"]:
            raise _refuse(
                field,
                config,
                "NxDI ignores it unless enable_bucketing is true",
                "unset",
                f"set enable_bucketing=true, or --set {field}=null",
            )
        widths = [item if isinstance(item, int) else item[0] for item in listed]
        if len(set(map(str, listed))) != len(listed):
            raise _refuse(
                field, config, "a bucket stands twice", "each bucket once", "leave the second out"
            )
        if max(widths) > limit:
            raise _refuse(
                field,
                config,
                f"the largest exceeds {what}, {limit}",
                f"1 to {limit}",
                f"end the list with {limit}, or --set {field}=null to derive it",
            )
        if max(widths) < limit:
            warnings.append(
                f"{field} ends at {max(widths)}, below {what} {limit}: "
                "longer sequences will be refused at run time"
            )
    return warnings


def _batches(config: NeuronConfig, model: Mapping[str, Any], target: Target) -> list[str]:
    if config["is_continuous_batching"] and config["batch_size"] > 1:
        if config["ctx_batch_size"] != 1:
            raise _refuse(
                "ctx_batch_size",
                config,
                "continuous batching encodes one prompt at a time",
                1,
                "set ctx_batch_size to 1, or is_continuous_batching to false",
            )
    elif config["ctx_batch_size"] > config["batch_size"]:
        raise _refuse(
            "ctx_batch_size",
            config,
            f"it cannot exceed batch_size, {config['batch_size']}",
            f"1 to {config['batch_size']}",
            "lower ctx_batch_size or raise batch_size",
        )
    widths = config.get("token_generation_batches")
    if (
        widths is not None
        and max([widths] if isinstance(widths, int) else widths) > (config["tkg_batch_size"])
    ):
        raise _refuse(
            "token_generation_batches",
            config,
            f"the largest exceeds tkg_batch_size, {config['tkg_batch_size']}",
            f"1 to {config['tkg_batch_size']}",
            "lower it or raise batch_size",
        )
    return []


def _blocks(config: NeuronConfig, model: Mapping[str, Any], target: Target) -> list[str]:
    size = config.get("pa_block_size")
    if config.get("is_block_kv_layout") and size is not None and config["seq_len"] % size:
        raise _refuse(
            "seq_len",
            config,
            f"it is no multiple of pa_block_size, {size}",
            f"multiples of {size}",
            f"set seq_len to {-(-config['seq_len'] // size) * size}",
        )
    return []


def _dtype(config: NeuronConfig, model: Mapping[str, Any], target: Target) -> list[str]:
    dtype = config["torch_dtype"]
    legal = ["float32", "bfloat16", "float16"]
    if dtype not in legal:
        # trn1 to trn2 have no e4m3fn at all, and as the dtype of everything it is unusable:
        # FP8 weights are quantization_dtype, an FP8 cache is kv_quant_config.
        raise _refuse(
            "torch_dtype",
            config,
            f"{target.platform} supports {', '.join(legal)}",
            legal,
            "use bfloat16"
            if target.is_cpu
            else "use bfloat16, and quantized=true with quantization_dtype for FP8 weights",
        )
    if dtype == "float16" and model.get("dtype") in ("bfloat16", "float32"):
        return [f"torch_dtype float16 overflows above 65504, and {model['dtype']} does not"]
    return []


def _topology(config: NeuronConfig, model: Mapping[str, Any], target: Target) -> list[str]:
    degree = config["tp_degree"]
    if degree % config.get("cp_degree", 1):
        raise _refuse(
            "tp_degree",
            config,
            f"cp_degree {config['cp_degree']} does not divide it",
            f"multiples of {config['cp_degree']}",
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
        raise _refuse("tp_degree", config, where, list(legal), f"set tp_degree to one of {shown}")
    if target.instance:
        return _instance_size(config, target)
    return []


def _spans_nodes(degree: int, target: Target) -> bool:
    """trn1 groups whole nodes of 32 cores; an instance name says that there is one."""
    return target.platform in ("trn1", "trn1n") and not target.instance and degree % 32 == 0


def _instance_size(config: NeuronConfig, target: Target) -> list[str]:
    cores = INSTANCES[str(target.instance)].logical_cores(target.lnc or 1)
    world = config.get(
        "world_size",
        config["tp_degree"] * config.get("pp_degree", 1) * config.get("ep_degree", 1),
    )
    if world > cores:
        raise ConfigError(
            f"the program needs {world} cores; {target.instance} has {cores} at LNC {target.lnc}",
            field="tp_degree",
            value=config["tp_degree"],
            legal=f"tp_degree x pp_degree x ep_degree <= {cores}",
            hint="lower a degree or choose a larger instance",
        )
    return []


def _heads(config: NeuronConfig, model: Mapping[str, Any], allow_padding: bool) -> list[str]:
    query = model.get("num_attention_heads")
    if not isinstance(query, int):
        return []
    key_value = model.get("num_key_value_heads")
    heads = shard_heads(query, key_value or query, config["tp_degree"])
    if heads.is_padded and not allow_padding:
        fits = [n for n in range(1, query + 1) if query % n == 0]
        legal = legal_tp_degrees(config.target)
        fits = [n for n in fits if legal is None or n in legal]
        raise _refuse(
            "tp_degree",
            config,
            f"it does not divide {query} attention heads; they would be padded ({heads.note})",
            fits,
            f"set tp_degree to one of {', '.join(map(str, fits))}, or consent with "
            "--allow-head-padding",
        )
    return [heads.note] if heads.note else []


RULES: tuple[Rule, ...] = (_lengths, _buckets, _batches, _blocks, _dtype, _topology)
