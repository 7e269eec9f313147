"""Is this keyword known, and is this value one it can have?

Everything here is about a single keyword; combinations are in `checks`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from neuroncompile.config.schema import (
    CLASSES,
    FAMILY_CLASSES,
    LEGAL,
    MINIMUM,
    Row,
    fields_of,
)
from neuroncompile.errors import ConfigError, nearest

__all__ = ["DTYPES", "check_table", "coerce", "refuse_type", "unknown_keyword"]

DTYPES = ("float32", "bfloat16", "float16", "float8_e4m3fn", "float8_e5m2")
"""Names NxDI accepts for a dtype; `checks` narrows them per target."""

_WORDS = {
    "int": "a whole number",
    "bool": "true or false",
    "str": "text",
    "float": "a number",
    "dtype": f"one of {', '.join(DTYPES)}",
    "ints": "a list of whole numbers",
    "strs": "a list of texts",
    "list": "a list",
    "dict": "a table",
    "buckets": "a list of whole numbers",
}


def coerce(row: Row, value: Any, *, path: str, origin: str, text: bool = False) -> Any:
    """The value as its keyword's type has it, so that equal meanings have equal keys.

    Args:
        row: the keyword's row of the schema.
        value: JSON-like; None means "unset" where NxDI's default is unset or derived.
        path: dotted name, for the message.
        origin: the layer, for the message.
        text: the value was typed in a shell, where `128,512` may stand for a list.

    Raises:
        ConfigError: wrong type, below the least legal value, or not one of the legal ones.
    """
    name, kinds, default, _ = row
    if value is None:
        if default is None or (isinstance(default, str) and default.startswith("=")):
            return None
        raise refuse_type(row, value, path=path, origin=origin)
    if text and ("ints" in kinds or kinds == "buckets"):
        if isinstance(value, str):
            value = _comma_list(value, path=path, origin=origin)
        elif type(value) is int and "int" not in kinds.split("|"):
            value = [value]  # a list of one, typed as one
    for kind in kinds.split("|"):
        if _is(kind, value):
            break
    else:
        raise refuse_type(row, value, path=path, origin=origin)
    if kind == "float":
        value = float(value)  # 1 and 1.0 mean the same and must not be two keys
    if name == "token_generation_batches" and kind == "int":
        kind, value = "ints", [value]  # as NxDI does, or one meaning would have two keys
    _check_range(name, value, path=path, origin=origin)
    return sorted(value) if kind in ("ints", "buckets") and name != "buckets" else value


def check_table(values: Mapping[str, Any], *, path: str, origin: str) -> None:
    """Check a neuron config that stands inside a free-form table, nested configs included.

    Args:
        path: where it stands, for the message.

    Raises:
        ConfigError: an unknown keyword or an illegal value.
    """

    def check(values: Mapping[str, Any], rows: Mapping[str, Row], path: str, owner: str) -> None:
        for name, value in values.items():
            row, inner = rows.get(name), f"{path}.{name}"
            if row is None:
                raise unknown_keyword(inner, name, rows, owner=owner, origin=origin)
            if row[1] not in CLASSES:
                coerce(row, value, path=inner, origin=origin)
            elif isinstance(value, Mapping):
                check(value, {nested[0]: nested for nested in CLASSES[row[1]]}, inner, row[1])
            elif value is not None:
                raise refuse_type(row, value, path=inner, origin=origin)

    check(values, fields_of(None), path, "NxDI's NeuronConfig")


def refuse_type(row: Row, value: Any, *, path: str, origin: str) -> ConfigError:
    """The error for a value of the wrong type."""
    words = " or ".join(_WORDS.get(kind, "a table") for kind in row[1].split("|"))
    hint = f"give {path} {words}"
    if isinstance(value, str) and row[1] == "bool" and value.lower() in ("true", "false"):
        hint = f"write {value.lower()} without quotes and in lower case"
    elif isinstance(value, str) and "int" in row[1] and value.strip().lstrip("-").isdigit():
        hint = f"write {path}={value.strip()} without quotes"
    elif isinstance(value, str) and value.lower() in ("none", "null"):
        hint = f"leave {path} out for its default"
    return ConfigError(
        f"{path} is {value!r} ({origin}); it must be {words}",
        field=path,
        value=value,
        legal=words,
        hint=hint,
    )


def unknown_keyword(
    path: str, name: str, known: Mapping[str, Any], *, owner: str, origin: str
) -> ConfigError:
    """The error for a keyword nobody knows, with what it was most likely meant to be."""
    prefix = path[: len(path) - len(name)]
    if not prefix and name in fields_of(None):
        return _other_family(path, known, owner=owner, origin=origin)
    from neuroncompile.config.renamed import RENAMED

    near = RENAMED.get(name)
    near = near if near and near.partition(".")[0] in known else nearest(name, known)
    if near:
        near = prefix + near
    elif not prefix:
        near = _elsewhere(name)
    return ConfigError(
        f"{path} is no keyword of {owner} ({origin})",
        field=path,
        value=name,
        legal=sorted(known),
        hint=f"did you mean {near}?" if near else _no_longer(name),
        details={"suggestion": near},
    )


def _no_longer(name: str) -> str:
    from neuroncompile.config.versions import GONE

    if name in GONE:
        last = ".".join(map(str, GONE[name][0]))
        return f"leave {name} out: NxD Inference has read it up to {last} only"
    return "neuroncompile build --help lists --allow-unknown"


def _other_family(path: str, known: Mapping[str, Any], *, owner: str, origin: str) -> ConfigError:
    families = [family for family in FAMILY_CLASSES if path in fields_of(family)]
    return ConfigError(
        f"{path} has no effect in {owner} ({origin}); it is for {', '.join(families)}",
        field=path,
        value=path,
        legal=sorted(known),
        hint=f"leave {path} out for this model",
    )


def _elsewhere(name: str) -> str | None:
    """A nested keyword of that very name, by its full path (`top_k`)."""
    for owner in ("NeuronConfig", "MoENeuronConfig"):
        for field, kinds, _, _ in CLASSES[owner]:
            if kinds in CLASSES and any(row[0] == name for row in CLASSES[kinds]):
                return f"{field}.{name}"
    return None


def _is(kind: str, value: Any) -> bool:
    if kind == "int":
        return type(value) is int  # True is an int to Python, not to a person
    if kind == "bool":
        return type(value) is bool
    if kind == "float":
        return type(value) in (int, float)
    if kind == "str":
        return type(value) is str
    if kind == "dtype":
        return type(value) is str and value in DTYPES
    if kind == "ints":
        return _is_list(value) and all(type(item) is int for item in value)
    if kind == "strs":
        return _is_list(value) and all(type(item) is str for item in value)
    if kind == "list":
        return _is_list(value)
    if kind == "buckets":  # pairs are (chunk, tiles), for chunked prefill
        return _is("ints", value) or (
            _is_list(value) and all(_is("ints", item) and len(item) == 2 for item in value)
        )
    return isinstance(value, Mapping)


def _is_list(value: Any) -> bool:
    return isinstance(value, list | tuple)


def _comma_list(text: str, *, path: str, origin: str) -> list[Any]:
    items = [item.strip() for item in text.split(",")]
    if not all(item.isdigit() for item in items):
        bad = next(item for item in items if not item.isdigit())
        raise ConfigError(
            f"{path} is {text!r} ({origin}); {bad!r} is no whole number",
            field=path,
            value=text,
            legal="whole numbers with commas between them",
            hint=f"write {path}=128,512,2048",
        )
    return [int(item) for item in items]


def _check_range(name: str, value: Any, *, path: str, origin: str) -> None:
    legal = LEGAL.get(name)
    if legal is not None and value not in legal:
        shown = ", ".join(map(str, legal))
        raise ConfigError(
            f"{path} is {value!r} ({origin}); legal: {shown}",
            field=path,
            value=value,
            legal=list(legal),
            hint=f"set {path} to one of {shown}",
        )
    least = MINIMUM.get(name)
    if least is None:
        return
    numbers = value if _is_list(value) else [value]
    flat = [n for item in numbers for n in (item if _is_list(item) else [item])]
    if not flat or min(flat) < least:
        what = "it must not be empty" if not flat else f"it must be at least {least}"
        raise ConfigError(
            f"{path} is {value!r} ({origin}); {what}",
            field=path,
            value=value,
            legal=f">= {least}",
            hint=f"set {path} to {least} or more" if flat else f"leave {path} out to derive it",
        )
