"""Why two keys differ."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from neuroncompile.keys.canonical import canonical, canonical_bytes
from neuroncompile.keys.exclusions import Exclusion, without

__all__ = ["ABSENT", "Difference", "differences", "excluded_differences", "nearest_spec"]

ABSENT = "(absent)"


@dataclass(frozen=True, slots=True)
class Difference:
    """One field that differs; `ABSENT` where a side does not have it."""

    path: str
    left: Any
    right: Any


def differences(left: Mapping[str, Any], right: Mapping[str, Any]) -> list[Difference]:
    """Every leaf that differs between two specs, by dotted path, in sorted order."""
    return list(_walk("", left, right))


def excluded_differences(
    left: Mapping[str, Any],
    right: Mapping[str, Any],
    table: Mapping[str, Exclusion],
    *,
    nested: bool = False,
    fused_speculation: bool = False,
) -> list[Difference]:
    """What differs between two raw configs and, by `table`, not between their keys.

    Args:
        left, right: a model's config or NxDI keywords, before exclusion.
        nested, fused_speculation: as for `exclusions.without`.
    """

    def kept(config: Mapping[str, Any]) -> Any:
        return canonical(without(config, table, nested=nested, fused_speculation=fused_speculation))

    counted = {d.path for d in differences(kept(left), kept(right))}
    found = differences(canonical(left), canonical(right))
    return [d for d in found if d.path not in counted]


def nearest_spec(
    spec: Mapping[str, Any], candidates: Mapping[str, Mapping[str, Any]]
) -> str | None:
    """Key of the candidate most like `spec`: most equal sections, then fewest differing leaves."""

    def distance(key: str) -> tuple[int, int, str]:
        other = candidates[key]
        unequal = sum(
            canonical_bytes(spec.get(section)) != canonical_bytes(other.get(section))
            for section in {*spec, *other}
        )
        return unequal, len(differences(spec, other)), key

    return min(candidates, key=distance, default=None)


def _walk(path: str, left: Any, right: Any) -> Iterator[Difference]:
    if isinstance(left, Mapping) and isinstance(right, Mapping):
        for name in sorted({*left, *right}):
            inner = f"{path}.{name}" if path else name
            yield from _walk(inner, left.get(name, ABSENT), right.get(name, ABSENT))
    elif type(left) is not type(right) or left != right:
        yield Difference(path, left, right)
