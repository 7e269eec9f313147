"""Canonical JSON: one byte string for one meaning.

RFC 8785 over a restricted domain: strings, booleans, null, integers within ±(2^53−1), lists
and mappings with string keys in the Basic Multilingual Plane. Floats become strings first, so
the number formatting of RFC 8785 is never needed; within this domain the standard library's
sorted, compact output is byte-identical to RFC 8785's (sort order differs only beyond the BMP).
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from typing import Any

from neuroncompile.errors import ConfigError

__all__ = ["canonical", "canonical_bytes", "canonical_number", "digest_of"]

LARGEST = 2**53 - 1


def canonical_number(value: float) -> int | str:
    """One spelling for one number: whole floats as integers, others as their shortest repr.

    `10000.0`, `1e4` and `10000` are one rope_theta and give one key; `1e-05` stays a string, as
    do infinities and NaN, which JSON does not have.
    """
    if math.isfinite(value) and value == int(value) and abs(value) <= LARGEST:
        return int(value)
    return repr(float(value))


def canonical(value: Any, path: str = "") -> Any:
    """`value` within the domain: floats spelt, tuples as lists, mappings as dicts.

    Raises:
        ConfigError: something JSON cannot carry, named by its dotted path.
    """
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return _text(value, path)
    if isinstance(value, int):
        if abs(value) > LARGEST:
            raise ConfigError(
                f"{path or 'value'} is {value}; whole numbers go to 2^53-1",
                field=path,
                value=str(value),
                legal=f"±{LARGEST}",
            )
        return int(value)
    if isinstance(value, float):
        return canonical_number(value)
    if isinstance(value, (list, tuple)):
        return [canonical(item, f"{path}[{i}]") for i, item in enumerate(value)]
    if isinstance(value, Mapping):
        return {_name(key, path): canonical(v, f"{path}.{key}") for key, v in value.items()}
    raise ConfigError(
        f"{path or 'value'} is a {type(value).__name__}; a spec holds JSON values only",
        field=path,
        value=repr(value),
        legal="string, number, boolean, null, list, mapping",
    )


def canonical_bytes(value: Any) -> bytes:
    """The canonical bytes of `value`, UTF-8."""
    return json.dumps(
        canonical(value), sort_keys=True, separators=(",", ":"), ensure_ascii=False
    ).encode()


def digest_of(data: bytes) -> str:
    """SHA-256 as 64 hex digits."""
    return hashlib.sha256(data).hexdigest()


def _text(value: str, path: str) -> str:
    """The characters, where UTF-8 has them all; `str()` of a string enumeration is its name."""
    text = str.__str__(value)
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ConfigError(
            f"{path or 'value'} is {text!r}; half of a surrogate pair is no character",
            field=path,
            value=repr(text),
            legal="Unicode text",
        ) from None
    return text


def _name(key: Any, path: str) -> str:
    if not isinstance(key, str) or any(ord(c) > 0xFFFF for c in key):
        raise ConfigError(
            f"{path or 'a mapping'} has the key {key!r}; keys are strings within the BMP",
            field=path,
            value=repr(key),
            legal="string",
        )
    return _text(key, path)
