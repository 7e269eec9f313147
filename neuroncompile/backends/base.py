"""What every backend makes and is asked for."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple, Protocol

__all__ = ["Backend", "File", "Graph"]


class Graph(NamedTuple):
    """One thing that is compiled, kept and reused on its own.

    Attributes:
        submodel: NxDI's tag, "context_encoding_model", "token_generation_model", ….
        region: which part of the submodel: "layer", "edge" (final norm and head) or "whole".
        batch: rows in one call.
        bucket: tokens a row may have (context encoding) or cache positions read (token
            generation).
        cache_length: cache positions a row has room for.
        spec: everything that can change the compiled bytes; empty where the program, not the
            graph, is what a backend compiles.
        key: SHA-256 of the spec's canonical bytes, 64 hex digits; "" without a spec.
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


class File(NamedTuple):
    """A finished output: its name inside the artifact, where it lies now, its media type."""

    title: str
    path: Path
    media_type: str


class Backend(Protocol):
    """What the pipeline asks of either backend; how each compiles and loads is its own.

    Attributes:
        name: "cpu" or "nxdi".
        optlevels: legal levels of `-O`.
        default_optlevel: the level without `-O`; None leaves it to the vendor.
    """

    name: str
    optlevels: tuple[str, ...]
    default_optlevel: str | None

    def identity(self, python: str | None = None) -> dict[str, str]:
        """Package → version of the compiler; empty when there is none.

        Args:
            python: interpreter to ask; this one without it.
        """
        ...

    def check(self, neuron: Mapping[str, Any], model: Mapping[str, Any]) -> None:
        """Refuse what this backend cannot honour; raises ConfigError naming the field."""
        ...

    def preflight(self, python: str | None = None) -> None:
        """Refuse what no compile on this host could finish; raises ConfigError or a subclass.

        Args:
            python: interpreter of the toolchain, where one is named.
        """
        ...

    def graphs(self, spec: Mapping[str, Any]) -> list[Graph]:
        """The graphs of a compile spec, in the order they are worth compiling."""
        ...
