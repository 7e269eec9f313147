"""What every backend makes and is asked for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

__all__ = ["Backend", "File", "Graph"]


@dataclass(frozen=True, slots=True)
class Graph:
    """One thing that is compiled, kept and reused on its own.

    Attributes:
        submodel: "context_encoding_model" or "token_generation_model".
        region: which part of the submodel: "layer", "edge" (final norm and head) or "whole".
        batch: rows in one call.
        bucket: tokens a row may have (context encoding) or cache positions read (token
            generation).
        cache_length: cache positions a row has room for.
        spec: everything that can change the compiled bytes.
        key: SHA-256 of the spec's canonical bytes, 64 hex digits.
        name: for people, unique within a program.
    """

    submodel: str
    region: str
    batch: int
    bucket: int
    cache_length: int
    spec: Mapping[str, Any]
    key: str
    name: str


@dataclass(frozen=True, slots=True)
class File:
    """A finished output: its name inside the artifact, where it lies now, its media type."""

    title: str
    path: Path
    media_type: str


class Backend(Protocol):
    """What the pipeline needs from a backend."""

    name: str

    def graphs(self, spec: Mapping[str, Any]) -> list[Graph]:
        """The graphs of a compile spec, in the order they are worth compiling."""
        ...

    def compile(
        self, graphs: Sequence[Graph], *, scratch: Path, jobs: int | None
    ) -> Iterator[tuple[Graph, list[File]]]:
        """Each graph with its files as it finishes; raises CompileError."""
        ...
