"""What a user asked for, before anything is resolved."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

__all__ = ["BuildRequest", "Chosen", "WayAround"]


class Chosen(NamedTuple):
    """A program that exists: its key, 64 hex digits, and its spec."""

    key: str
    spec: Mapping[str, Any]


class BuildRequest(NamedTuple):
    """One program, as asked for by `build`, `run` or `neuroncompile.build`.

    Attributes:
        model: reference to a model, or the name or path of a recipe.
        target: target text, or None for the recipe's, else cpu.
        flags: NxDI keyword → (flag's name, value) for what was given outright.
        sets: `a.b=c` texts, applied last.
        overrides: `--override-neuron-config` texts: JSON objects, or @FILE.
        vllm: start from vLLM's defaults instead of ours.
        num_speculative_tokens: with `vllm`, from its defaults for speculation.
        optlevel: "1", "2", … or None for the backend's default.
        allow_unknown: let keywords through that the schema does not know.
        allow_head_padding: consent to attention heads of zeros where tp does not divide them.
        revision: branch, tag or commit of a hub model.
        toolchain: name or frozen file.
        artifact: the only program that will do, or None for whichever the rest asks for.
        model_class: "PATH_OR_MODULE:Class" of the user's own, for Neuron targets.
        draft: reference of a draft model, or "self".
        adapters: "NAME=REF" texts.
        locked: refuse what leads to another key than neuroncompile.lock has.
        unlocked: look at no lock file.
        pins: reference → commit, of a lock file, for what names no revision itself.
        fallback: take a documented way around a compiler's failure, another program.
    """

    model: str
    target: str | None = None
    flags: Mapping[str, tuple[str, Any]] = {}
    sets: tuple[str, ...] = ()
    overrides: tuple[str, ...] = ()
    vllm: bool = False
    num_speculative_tokens: int | None = None
    optlevel: str | None = None
    allow_unknown: bool = False
    allow_head_padding: bool = False
    revision: str | None = None
    toolchain: str | None = None
    artifact: Chosen | None = None
    model_class: str | None = None
    draft: str | None = None
    adapters: tuple[str, ...] = ()
    fallback: bool = False
    locked: bool = False
    unlocked: bool = False
    pins: Mapping[str, str] = {}

    @property
    def has_companions(self) -> bool:
        """Whether anything besides the model is asked for outright."""
        return bool(self.model_class or self.draft or self.adapters)

    def around(self, way: WayAround) -> BuildRequest:
        """The request with a way around laid over it."""
        import json

        sets = tuple(f"{name}={json.dumps(value)}" for name, value in way.changes.items())
        flags = {name: row for name, row in self.flags.items() if name not in way.changes}
        return self._replace(
            flags=flags, sets=(*self.sets, *sets), optlevel=way.optlevel or self.optlevel
        )


class WayAround(Exception):  # noqa: N818 - not an error: what to build instead
    """A documented way around a compiler's failure, which --fallback lets be taken.

    Attributes:
        reason: the failure, in one line.
        text: what is built instead, for a person.
        optlevel: level of -O, or None to leave it.
        changes: NxDI keyword → value.
    """

    def __init__(
        self, reason: str, text: str, optlevel: str | None, changes: Mapping[str, Any]
    ) -> None:
        super().__init__(reason)
        self.reason, self.text, self.optlevel, self.changes = reason, text, optlevel, changes
