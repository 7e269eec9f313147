"""The cpu backend as the pipeline sees it; each step imports what it needs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from neuroncompile.backends.base import File, Graph
from neuroncompile.errors import ToolchainError

if TYPE_CHECKING:
    from neuroncompile.runtime.engine import Engine

__all__ = ["CpuBackend"]


class CpuBackend:
    """torch.export and AOTInductor, graph by graph; see `backends.base.Backend` for the rest."""

    name = "cpu"
    optlevels: tuple[str, ...] = ("1", "2")
    default_optlevel: str | None = "1"

    def identity(self, python: str | None = None) -> dict[str, str]:
        from neuroncompile.backends.cpu.identity import identity

        try:
            return identity()
        except ToolchainError:
            return {}

    def check(self, neuron: Mapping[str, Any], model: Mapping[str, Any]) -> None:
        from neuroncompile.backends.cpu.checks import check
        from neuroncompile.models.architecture import shape_of

        check(neuron, shape_of(model))

    def preflight(self, python: str | None = None) -> None:
        from neuroncompile.backends.cpu.compile import check_toolchain

        check_toolchain()

    def compiler(self) -> str:
        """What compiles, in one line for provenance."""
        from neuroncompile.backends.cpu.compile import compiler_version

        return compiler_version()

    def graphs(self, spec: Mapping[str, Any]) -> list[Graph]:
        from neuroncompile.backends.cpu.program import graphs_of

        return graphs_of(spec)

    def compile(
        self,
        graphs: Sequence[Graph],
        *,
        scratch: Path,
        cache: Path,
        jobs: int | None,
        on_start: Callable[[str], None],
        on_tick: Callable[[], None],
    ) -> Iterator[tuple[Graph, list[File]]]:
        """Each graph with its files as it finishes.

        Args:
            scratch: emptied at the end.
            cache: where what can be made again may be kept.

        Raises:
            CompileError: a compiler failed.
            StoreError: no space left.
        """
        from neuroncompile.backends.cpu.compile import compile_graphs

        return compile_graphs(
            graphs,
            scratch=scratch,
            cache=cache,
            jobs=jobs,
            on_start=on_start,
            on_tick=on_tick,
        )

    def program(self, spec: Mapping[str, Any]) -> dict[str, Any]:
        """`program.json`: how the engine runs the graphs of a compile spec."""
        from neuroncompile.backends.cpu.program import program_of

        return program_of(spec)

    def load(self, view: Path, weights: Sequence[Path]) -> Engine:
        """An engine for the program in `view`.

        Raises:
            RunError: it cannot be loaded.
            ModelError: the weights are not those of its model.
        """
        from neuroncompile.backends.cpu.engine import load

        return load(view, weights)
