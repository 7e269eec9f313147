"""Every graph of one program, each from the store or from a compiler."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from neuroncompile.backends import Graph
from neuroncompile.backends.cpu.backend import CpuBackend
from neuroncompile.errors import (
    CompileError,
    CorruptArtifactError,
    InterruptedBuildError,
    StoreError,
    ToolchainError,
)
from neuroncompile.output import Output, age
from neuroncompile.pipeline.plan import Plan
from neuroncompile.pipeline.progress import BuildProgress, waiter
from neuroncompile.pipeline.provenance import provenance
from neuroncompile.pipeline.sharing import Tiers
from neuroncompile.settings import Settings
from neuroncompile.store import Artifact, Layer, Store

__all__ = ["Assembled", "compile_graphs", "refuse_rejected"]


@dataclass(slots=True)
class Assembled:
    """The layers of a program, how its graphs were had, and what provenance adds."""

    layers: list[Layer] = field(default_factory=list)
    compiled: tuple[str, ...] = ()
    reused: tuple[str, ...] = ()
    facts: dict[str, Any] = field(default_factory=dict)


@contextmanager
def compile_graphs(
    plan: Plan, store: Store, settings: Settings, output: Output, tiers: Tiers
) -> Iterator[Assembled]:
    """Look up, pull or compile each graph of `plan`, publishing each as it finishes.

    Inside the block nobody collects them, so that the program can be published from them.
    """
    with ExitStack() as held:
        work = _Work(plan, store, settings, output, held)
        work.pull(tiers)
        yield _assemble(work)


def _assemble(work: _Work) -> Assembled:
    plan, backend, store = work.plan, work.backend, work.store
    missing = work.missing
    if missing or not work.graphs:
        backend.preflight()
        _same_toolchain(plan, backend)
        for graph in missing:
            refuse_rejected(store, work.settings, "graph", graph.key, graph.name)
    work.output.note(_announcement(plan, len(work.graphs), len(missing)))
    for graph in work.graphs:
        if graph.key in work.have:
            work.keep(graph, "kept")
    try:
        work.compile_unclaimed(missing)
        for graph in missing:
            if graph.key not in work.have:
                work.await_other(graph)
    except KeyboardInterrupt:
        kept = sum(store.lookup("graph", g.key, touch=False) is not None for g in work.graphs)
        raise _interrupted(kept, len(work.graphs), work.settings) from None
    layers = _layers(backend.program(plan.spec), store, work.graphs, work.have)
    return Assembled(layers, tuple(work.compiled), tuple(work.reused))


def refuse_rejected(store: Store, settings: Settings, kind: str, key: str, name: str) -> None:
    """Say again what a compiler has said of this very spec within the last day.

    Raises:
        CompileError: it was rejected, and `settings.retry_failed` is not set.
    """
    failure = store.failure(kind, key)
    if failure is None or settings.retry_failed:
        return
    raise CompileError(
        f"{name} was rejected {age(failure.since)}: {failure.reason}",
        hint="--retry-failed compiles it again; another configuration or toolchain has "
        "another key and is not held back",
        details={
            "graph": name,
            "key": key,
            "attempts": failure.attempts,
            "log": None if failure.log is None else str(store.blob_path(failure.log)),
            "remembered": True,
        },
    )


class _Work:
    """The graphs of one program on their way into the store."""

    def __init__(
        self,
        plan: Plan,
        store: Store,
        settings: Settings,
        output: Output,
        held: ExitStack,
    ) -> None:
        self.plan, self.store, self.held = plan, store, held
        self.settings, self.output = settings, output
        self.backend = CpuBackend()
        self.graphs = self.backend.graphs(plan.spec)
        self.have: dict[str, Artifact] = {}
        for graph in self.graphs:
            found = store.lookup("graph", graph.key)
            if found is not None:
                self._take(graph, found)
        self.compiled: list[str] = []
        self.reused: list[str] = []
        self.progress = BuildProgress(output, total=len(self.graphs))

    def pull(self, tiers: Tiers) -> None:
        """Take from the tiers what another program's build has pushed."""
        if not tiers:
            return
        for graph in self.missing:
            if found := tiers.pull(self.store, "graph", graph.key):
                self._take(graph, found.artifact)

    @property
    def missing(self) -> list[Graph]:
        return [graph for graph in self.graphs if graph.key not in self.have]

    def _take(self, graph: Graph, found: Artifact) -> None:
        """Use a graph, and keep it from the collector until the program that has it is kept."""
        with suppress(CorruptArtifactError):  # collected this instant: as if never found
            self.held.enter_context(self.store.hold(found))
            self.have[graph.key] = found

    def _remember(self, error: CompileError) -> None:
        """Keep what is sure to come again, with the compiler's log, for a day."""
        if not error.details.get("deterministic"):
            return
        try:
            log = Path(error.details["log"]).read_bytes()
        except OSError:
            log = None
        self.store.remember_failure("graph", error.details["key"], error.details["how"], log=log)

    def keep(self, graph: Graph, how: str) -> None:
        """Count a graph that somebody else compiled."""
        self.store.count("hit", "graph", graph.key)
        self.reused.append(graph.name)
        self.progress.finish(graph.name, how=how)

    def compile_unclaimed(self, graphs: Sequence[Graph]) -> None:
        """Compile those that no other build is compiling, which another program may share."""
        claims = {g.key: c for g in graphs if (c := self.store.try_claim("graph", g.key))}
        try:
            ours = [g for g in graphs if g.key in claims and not self._found(g)]
            for graph in self._compile(ours):
                claims.pop(graph.key).release()
        finally:
            for claim in claims.values():
                claim.release()

    def await_other(self, graph: Graph) -> None:
        """Take the graph from the build that has claimed it, or compile it if that one fails."""
        with self.store.single_flight(
            "graph", graph.key, waiter(self.output, f"compiles {graph.name}")
        ):
            if not self._found(graph):
                for _ in self._compile([graph]):
                    pass

    def _found(self, graph: Graph) -> bool:
        """Look again: it may have been published since the first look."""
        found = self.store.lookup("graph", graph.key)
        if found is not None:
            self._take(graph, found)
        if graph.key in self.have:
            self.keep(graph, "kept")
        return graph.key in self.have

    def _compile(self, graphs: Sequence[Graph]) -> Iterator[Graph]:
        if not graphs:
            return
        compiler = self.backend.compiler()
        try:
            for graph, files in self.backend.compile(
                graphs,
                scratch=self.store.scratch("compile"),
                cache=self.settings.cache,
                jobs=self.settings.jobs,
                on_start=self.progress.start,
                on_tick=self.progress.tick,
            ):
                seconds = self.progress.seconds(graph.name)
                made = self.store.publish(
                    "graph",
                    graph.spec,
                    [Layer(f.title, path=f.path, media_type=f.media_type) for f in files],
                    provenance=provenance(self.plan, [graph.name], seconds, compiler=compiler),
                )
                self._take(graph, made)
                self.store.count("miss", "graph", graph.key)
                self.compiled.append(graph.name)
                self.progress.finish(graph.name)
                yield graph
        except CompileError as error:
            self._remember(error)
            raise
        except OSError as error:
            raise StoreError(
                f"the compilers' files cannot be written: {error.strerror or error}",
                hint=f"free space on {self.store.root}, then run the same command; finished "
                "graphs are kept",
            ) from None


def _layers(
    program: Mapping[str, Any],
    store: Store,
    graphs: Iterable[Graph],
    have: Mapping[str, Artifact],
) -> list[Layer]:
    text = json.dumps(program, sort_keys=True, indent=1) + "\n"
    layers = [Layer("program.json", data=text.encode(), media_type="application/json")]
    for graph in graphs:
        for descriptor in have[graph.key].layers:
            layers.append(
                Layer(
                    f"graphs/{graph.key[:16]}/{descriptor.title}",
                    path=store.blob_path(descriptor.digest),
                    media_type=descriptor.media_type,
                )
            )
    return layers


def _announcement(plan: Plan, total: int, missing: int) -> str:
    kept = f", {total - missing} kept from before" if missing < total else ""
    return (
        f"compiling {missing} of {total} graphs for {plan.target.text} at -O{plan.optlevel}{kept}"
    )


def _same_toolchain(plan: Plan, backend: CpuBackend) -> None:
    """Compiling with another toolchain than asked for would put a false name on the result.

    Equal means equal: torch 2.13.0 and 2.13.0+cpu are two builds, and an engine would refuse
    the one under the other's name.
    """
    installed = backend.identity()
    asked = plan.toolchain.spec()
    if installed == asked:
        return
    here = ", ".join(f"{k} {v}" for k, v in installed.items()) or "nothing that compiles"
    wanted = ", ".join(f"{k} {v}" for k, v in asked.items())
    raise ToolchainError(
        f"the toolchain asked for is {wanted} ({plan.toolchain.origin}); installed is {here}",
        field="toolchain",
        value=installed,
        legal=asked,
        hint="install those versions, or leave --toolchain out to compile with what is here",
    )


def _interrupted(done: int, total: int, settings: Settings) -> InterruptedBuildError:
    kept = f"{done} of {total} graphs are kept in {settings.store}"
    return InterruptedBuildError(
        f"interrupted; {kept}",
        hint="the same command goes on from there" if done else "nothing half-made is left",
        details={"graphs_kept": done, "graphs": total},
    )
