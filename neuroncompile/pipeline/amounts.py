"""Sizes and durations as people write them: `10G`, `1.5TiB`, `30d`, `90m`."""

from __future__ import annotations

import re

from neuroncompile.errors import ConfigError

__all__ = ["parse_bytes", "parse_seconds"]

_BYTES = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}
_BINARY = {"ki": 2**10, "mi": 2**20, "gi": 2**30, "ti": 2**40}
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400, "y": 365 * 86400}
_AMOUNT = re.compile(r"(\d+(?:\.\d+)?)\s*([a-z]*)")


def parse_bytes(text: str, field: str) -> int:
    """`10G`, `500MB`, `1.5TiB`, `4096`: bytes, decimal units unless written with an i.

    Raises:
        ConfigError: not a size.
    """
    found = _AMOUNT.fullmatch(text.strip().lower())
    unit = found[2].removesuffix("b") if found else None
    if found is None or unit not in _BYTES | _BINARY:
        raise _refused(text, field, "a size such as 500M, 10G or 1TiB")
    return int(float(found[1]) * (_BYTES | _BINARY)[unit])


def parse_seconds(text: str, field: str) -> float:
    """`30d`, `12h`, `90m`, `2w`, `0`: seconds.

    Raises:
        ConfigError: not a duration, or one without a unit.
    """
    found = _AMOUNT.fullmatch(text.strip().lower())
    if found is None or (found[2] not in _SECONDS and (found[2] or float(found[1]))):
        raise _refused(text, field, "a duration such as 90m, 12h, 30d or 2w")
    return float(found[1]) * _SECONDS.get(found[2], 0)


def _refused(text: str, field: str, legal: str) -> ConfigError:
    option = f"--{field.replace('_', '-')}"
    return ConfigError(
        f"{option} is {text!r}",
        field=field,
        value=text,
        legal=legal,
        hint=f"write {legal}",
    )
