"""All keywords as records: the schema's rows with their meaning, legal values and releases."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from neuroncompile.config.keywords import ABOUT, REACHES, meaning
from neuroncompile.config.legal import unknown_keyword
from neuroncompile.config.schema import CLASSES, FAMILY_CLASSES, LEGAL, MINIMUM, Row, fields_of
from neuroncompile.config.versions import since
from neuroncompile.errors import ConfigError

__all__ = ["Keyword", "keyword", "keywords"]

_REPEATED = ("text_neuron_config", "vision_neuron_config")


class Keyword(NamedTuple):
    """One keyword.

    Attributes:
        name: dotted, as `--set` takes it.
        type: as in `schema`, for people: "int", "one of …", "table".
        default: NxDI's own; text starting with "=" is derived.
        meaning: one line.
        legal: the legal values, or a bound, or None for any of the type.
        reaches: what it changes; see `keywords.REACHES`.
        since: the first release of NxD Inference that knows it, and the SDK with it.
        families: `model_type`s it is for; empty for all.
        owner: NxDI's class.
    """

    name: str
    type: str
    default: Any
    meaning: str
    legal: Any
    reaches: str
    since: str
    families: tuple[str, ...]
    owner: str

    def as_json(self) -> dict[str, Any]:
        """For `--json`; an infinite default becomes text."""
        record = dict(self._asdict())
        if self.default == float("inf"):
            record["default"] = "Infinity"
        record["reaches_meaning"] = REACHES[self.reaches]
        record["class_meaning"] = ABOUT[self.owner]
        return record


def keywords() -> tuple[Keyword, ...]:
    """Every keyword in the schema's order, nested ones after their table.

    The tables of an image-to-text model's two parts hold the top-level keywords again; they stand
    as one record each.
    """
    found: list[Keyword] = []
    for owner in _owners():
        for row in CLASSES[owner]:
            found += _records(owner, row, "")
    return tuple(found)


def keyword(name: str) -> Keyword:
    """One keyword by its dotted name; a bare nested name will do where it stands once.

    Raises:
        ConfigError: no such keyword, with the nearest.
    """
    everything = keywords()
    wanted = name.strip().replace("-", "_")
    for record in everything:
        if record.name == wanted:
            return record
    inner = [record for record in everything if record.name.rpartition(".")[2] == wanted]
    if len(inner) == 1:
        return inner[0]
    if inner:
        names = [record.name for record in inner]
        raise ConfigError(
            f"{wanted} stands in several tables: {', '.join(names)}",
            field=wanted,
            value=wanted,
            legal=names,
            hint=f"did you mean {names[0]}?",
        )
    known = {record.name: record for record in everything}
    raise unknown_keyword(
        wanted, wanted, known or fields_of(None), owner="the neuron config", origin="as asked for"
    )


def _owners() -> list[str]:
    """Classes whose keywords stand at the top, each once."""
    owners = ["NeuronConfig", "InferenceConfig"]
    for classes in FAMILY_CLASSES.values():
        owners += [name for name in classes if name not in owners]
    owners.remove("MoEImageToTextConfig")  # the same two keywords
    return owners


def _records(
    owner: str, row: Row, prefix: str, table: tuple[int, int] = (0, 1)
) -> Iterator[Keyword]:
    name, kinds, default, reaches = row
    first = max(since(owner, name), table)  # no older than the table it stands in
    yield Keyword(
        name=prefix + name,
        type="table" if kinds in CLASSES else kinds.replace("|", " or "),
        default=default,
        meaning=meaning(owner, name),
        legal=_legal(name, kinds),
        reaches=reaches,
        since=f"{first[0]}.{first[1]} (SDK 2.{first[1] + 20})",
        families=_families(owner),
        owner=owner,
    )
    if kinds in CLASSES and name not in _REPEATED:
        for nested in CLASSES[kinds]:
            yield from _records(kinds, nested, f"{prefix}{name}.", first)


def _legal(name: str, kinds: str) -> Any:
    if name in LEGAL:
        return list(LEGAL[name])
    if kinds == "bool":
        return [False, True]
    if name in MINIMUM and kinds not in CLASSES:
        return f">= {MINIMUM[name]}"
    return None


def _families(owner: str) -> tuple[str, ...]:
    owners = {owner} | ({"MoEImageToTextConfig"} if owner == "ImageToTextConfig" else set())
    having = [family for family, classes in FAMILY_CLASSES.items() if owners & set(classes)]
    return () if not having or len(having) == len(FAMILY_CLASSES) else tuple(having)
