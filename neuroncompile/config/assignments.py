"""Values as text: `--set a.b=c`, and a whole table as JSON."""

from __future__ import annotations

from typing import Any

from neuroncompile.errors import ConfigError

__all__ = ["parse_assignment", "parse_table", "parse_value"]


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


def parse_table(text: str, *, option: str) -> dict[str, Any]:
    """Read a JSON object, or with `@FILE` the one in a file.

    Raises:
        ConfigError: no such file, no JSON, or no object.
    """
    import json

    where = option
    if text.startswith("@"):
        where = text[1:]
        try:
            with open(where, encoding="utf-8") as file:
                text = file.read()
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "it is no text"
            raise ConfigError(
                f"{option} {text}: cannot be read, {reason}",
                field=option,
                value=text,
                legal="a JSON object, or @FILE with one",
                hint=f"{option} '{{\"batch_size\": 4}}', or name a file with @",
            ) from None
    try:
        value = json.loads(text, parse_constant=_constant)
    except (ValueError, RecursionError) as error:
        value = f"no JSON ({error})"
    if not isinstance(value, dict):
        what = value if isinstance(value, str) else f"a JSON {type(value).__name__}"
        raise ConfigError(
            f"{where} is {what}; it must be an object",
            field=option,
            value=text[:200],
            legal="a JSON object, or @FILE with one",
            hint=f"{option} '{{\"batch_size\": 4}}'",
        )
    return value


def _constant(name: str) -> float:
    if name == "NaN":
        raise ValueError("NaN is no value")  # it would not even equal itself
    return float(name)
