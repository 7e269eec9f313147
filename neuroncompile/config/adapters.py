"""LoRA adapters against the config that is to serve them.

NxD Inference reads each adapter's adapter_config.json while it is built and raises `max_lora_rank`,
`max_loras` and `target_modules` to what it finds (modules/lora_serving/config.py). That program is
another than was asked for, so here a contradiction is an error and what was left open is filled in.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from neuroncompile.errors import ConfigError

__all__ = ["Adapter", "adapter_of", "check_adapters"]


class Adapter(NamedTuple):
    """What an adapter's own config decides about a program.

    Attributes:
        name: as requests name it.
        rank: `r`.
        target_modules: names of the modules it changes.
        bias: "none", "all" or "lora_only".
    """

    name: str
    rank: int
    target_modules: tuple[str, ...]
    bias: str = "none"


def adapter_of(name: str, config: Mapping[str, Any]) -> Adapter:
    """Read an adapter_config.json, in PEFT's spelling or NxDI's older `lora_rank`.

    Raises:
        ConfigError: no LoRA adapter, or a field that decides about the program is missing.
    """
    kind = config.get("peft_type", "LORA")
    if kind != "LORA":
        raise _wrong(name, "peft_type", kind, "LORA", "only LoRA adapters can be served")
    rank = config.get("r", config.get("lora_rank"))
    if type(rank) is not int or rank < 1:
        raise _wrong(name, "r", rank, "a whole number from 1", "it is the adapter's rank")
    modules = config.get("target_modules")
    if not (
        isinstance(modules, list | tuple)
        and modules
        and all(isinstance(module, str) for module in modules)
    ):
        raise _wrong(
            name, "target_modules", modules, "a list of names", "NxD Inference takes no pattern"
        )
    for field in ("use_dora", "rank_pattern", "alpha_pattern", "modules_to_save"):
        if config.get(field):
            raise _wrong(name, field, config[field], "unset", "NxD Inference does not apply it")
    return Adapter(name, rank, tuple(sorted(modules)), str(config.get("bias") or "none"))


def check_adapters(lora: Mapping[str, Any], adapters: Sequence[Adapter]) -> dict[str, Any]:
    """The `lora_config` that serves these adapters, every field that shapes the program set.

    Args:
        lora: `lora_config` as asked for; {} when nothing was.

    Raises:
        ConfigError: an adapter needs more than was asked for.
    """
    filled = dict(lora)
    if not adapters:
        return filled
    highest = max(adapters, key=lambda adapter: adapter.rank)
    asked = filled.setdefault("max_lora_rank", highest.rank)
    if highest.rank > asked:
        raise _refuse(
            "max_lora_rank", asked, f"adapter {highest.name} has rank {highest.rank}", highest.rank
        )
    on_device = len(adapters)
    most = filled.setdefault("max_loras", on_device)
    if on_device > most and not filled.get("dynamic_multi_lora"):
        raise _refuse("max_loras", most, f"there are {on_device} adapters", on_device)
    wanted = {module: adapter.name for adapter in adapters for module in adapter.target_modules}
    modules = filled.setdefault("target_modules", sorted(wanted))
    missing = sorted(set(wanted) - set(modules))
    if missing:
        raise ConfigError(
            f"lora_config.target_modules is {modules!r}; adapter {wanted[missing[0]]} changes "
            f"{missing[0]} too",
            field="lora_config.target_modules",
            value=modules,
            legal=f"a list with {', '.join(sorted(wanted))}",
            hint=f"add {', '.join(missing)}, or leave target_modules out",
        )
    biased = next((adapter for adapter in adapters if adapter.bias != "none"), None)
    if biased is not None and filled.get("lora_bias", "none") == "none":
        raise ConfigError(
            f"lora_config.lora_bias is 'none'; adapter {biased.name} brings biases "
            f"({biased.bias!r})",
            field="lora_config.lora_bias",
            value="none",
            legal=["all"],
            hint="set lora_config.lora_bias=all",
        )
    return filled


def _refuse(field: str, value: int, because: str, least: int) -> ConfigError:
    return ConfigError(
        f"lora_config.{field} is {value!r}; {because}, and NxD Inference would raise it",
        field=f"lora_config.{field}",
        value=value,
        legal=f">= {least}",
        hint=f"set lora_config.{field} to {least}, or leave it out",
    )


def _wrong(name: str, field: str, value: Any, legal: str, because: str) -> ConfigError:
    return ConfigError(
        f"adapter {name}: {field} is {value!r} in adapter_config.json; {because}",
        field=f"adapters.{name}.{field}",
        value=value,
        legal=legal,
        hint=f"adapter {name} needs {field}: {legal}",
    )
