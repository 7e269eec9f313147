"""Why two keys differ."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from neuroncompile.keys.canonical import canonical_bytes

__all__ = ["ABSENT", "Difference", "differences", "nearest_spec"]

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
