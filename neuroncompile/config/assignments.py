"""`--set a.b=c`: one assignment as text, to a path and a typed value."""

from __future__ import annotations

from typing import Any

from neuroncompile.errors import ConfigError

__all__ = ["parse_assignment", "parse_value"]


def parse_assignment(text: str) -> tuple[tuple[str, ...], Any]:
    """Split `a.b=c` into ("a", "b") and its value.

    Raises:
        ConfigError: no "=", an empty name, or a value that begins as JSON and is not.
    """
    path, equals, value = text.partition("=")
    names = tuple(name.strip() for name in path.split("."))
    if not equals or not all(names):
        raise ConfigError(
            f"--set {text!r} is not NAME=VALUE",
            field=path.strip() or None,
            value=text,
            legal="NAME=VALUE or NAME.NAME=VALUE",
            hint="for example --set seq_len=4096 or --set on_device_sampling_config.top_k=1",
        )
    return names, parse_value(value, field=".".join(names))


def parse_value(text: str, *, field: str) -> Any:
    """Read a value as JSON where it is JSON, and as a plain word where it is not.

    `4` is a number, `"4"` text, `[128,512]` a list, `true` a boolean, `null` unset. A word such
    as `bfloat16` needs no quotes.

    Raises:
        ConfigError: starts as a list, an object or quoted text and does not parse, or is NaN.
    """
    import json

    text = text.strip()
    try:
        return json.loads(text, parse_constant=_constant)
    except ValueError as error:
        if not text.startswith(("[", "{", '"')) and text != "NaN":
            return text[1:-1] if len(text) > 1 and text[0] == text[-1] == "'" else text
        raise ConfigError(
            f"--set {field}: {text} is not valid JSON ({error})",
            field=field,
            value=text,
            legal="a number, true, false, null, a word, or JSON text, list or object",
            hint=f"quote it for the shell, for example --set '{field}=[128,512]'",
        ) from None


def _constant(name: str) -> float:
    if name == "NaN":
        raise ValueError("NaN is no value")  # it would not even equal itself
    return float(name)
