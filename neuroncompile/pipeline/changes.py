"""What differs between two programs, and which of it only follows from the rest."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from neuroncompile.keys.explain import differences

__all__ = ["Change", "changes", "in_words", "text_of"]

_NEURON = "neuron."


class Change(NamedTuple):
    """One field that differs; `follows` when both sides derived it from other fields."""

    path: str
    left: Any
    right: Any
    follows: bool

    def document(self) -> dict[str, Any]:
        return {
            "field": self.path,
            "left": self.left,
            "right": self.right,
            "follows": self.follows,
        }


def changes(left: Mapping[str, Any], right: Mapping[str, Any]) -> list[Change]:
    """The differing fields of two specs, those that follow from others last.

    Another batch size is another batch size of token generation too. Whoever asks why two
    keys differ wants to hear of the first, and may see the second.
    """
    found = differences(left, right)
    names = {d.path.removeprefix(_NEURON) for d in found if d.path.startswith(_NEURON)}
    implied: set[str] = set()
    if len(found) > 1 and left.get("kind") == right.get("kind") == "compile":
        from neuroncompile.config.derived import derived

        # an imported spec may be anything; then nothing is known to follow
        with contextlib.suppress(AttributeError, KeyError, TypeError, ValueError):
            implied = derived(left["neuron"], names) & derived(right["neuron"], names)
    told = [Change(d.path, d.left, d.right, d.path.removeprefix(_NEURON) in implied) for d in found]
    if all(change.follows for change in told):
        told = [change._replace(follows=False) for change in told]
    return sorted(told, key=lambda change: change.follows)


def in_words(told: Sequence[Change]) -> str:
    """One line: the fields with both values, then the names of those that follow."""
    line = ", ".join(
        f"{change.path} {text_of(change.left)} → {text_of(change.right)}"
        for change in told
        if not change.follows
    )
    follow = [change.path.removeprefix(_NEURON) for change in told if change.follows]
    return line + (f" (and so {', '.join(follow)})" if follow else "")


def text_of(value: Any) -> str:
    """A config value as `--set` would take it."""
    if isinstance(value, list):
        return ",".join(map(str, value))
    if value is None or isinstance(value, bool):
        return str(value).lower().replace("none", "null")
    return str(value)
