"""Every graph of one program, each from the store or from a compiler."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable
from dataclasses import dataclass, field

from neuroncompile.backends.base import Graph
from neuroncompile.backends.cpu import compile as cpu
from neuroncompile.backends.cpu.program import graphs_of, program_of
from neuroncompile.errors import InterruptedBuildError, ToolchainError
from neuroncompile.output import Output
from neuroncompile.pipeline.plan import Plan, cpu_identity
from neuroncompile.pipeline.progress import BuildProgress
from neuroncompile.pipeline.provenance import provenance
from neuroncompile.settings import Settings
from neuroncompile.store import Artifact, Layer, Store

__all__ = ["Assembled", "compile_graphs"]


@dataclass(slots=True)
class Assembled:
    """The layers of a program, and how its graphs were had."""

    layers: list[Layer] = field(default_factory=list)
    compiled: tuple[str, ...] = ()
    reused: tuple[str, ...] = ()


def compile_graphs(plan: Plan, store: Store, settings: Settings, output: Output) -> Assembled:
    """Look up or compile each graph of `plan`, publishing each as it finishes."""
    _same_toolchain(plan)
    graphs = graphs_of(plan.spec)
    have = {g.key: a for g in graphs if (a := store.lookup("graph", g.key)) is not None}
    missing = [g for g in graphs if g.key not in have]
    reused = tuple(g.name for g in graphs if g.key in have)
    progress = BuildProgress(output, total=len(graphs))
    output.note(_announcement(plan, len(graphs), len(missing)))
    if missing:
        cpu.check_toolchain()
    for name in reused:
        progress.finish(name, how="kept")
    compiled: list[str] = []
    try:
        for graph, files in cpu.compile_graphs(
            missing,
            scratch=store.scratch("compile"),
            jobs=settings.jobs,
            on_start=progress.start,
            on_tick=progress.tick,
        ):
            have[graph.key] = store.publish(
                "graph",
                graph.spec,
                [Layer(f.title, path=f.path, media_type=f.media_type) for f in files],
                provenance=provenance(plan, [graph.name], _seconds(progress, graph)),
            )
            compiled.append(graph.name)
            progress.finish(graph.name)
    except KeyboardInterrupt:
        raise _interrupted(progress.done, len(graphs), settings) from None
    return Assembled(_layers(plan, store, graphs, have), tuple(compiled), reused)


def _layers(
    plan: Plan, store: Store, graphs: Iterable[Graph], have: dict[str, Artifact]
) -> list[Layer]:
    program = program_of(plan.spec)
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


def _same_toolchain(plan: Plan) -> None:
    """Compiling with another toolchain than asked for would put a false name on the result."""
    installed = cpu_identity()
    if not plan.toolchain.mismatches(installed):
        return
    asked = plan.toolchain.spec()
    here = ", ".join(f"{k} {v}" for k, v in installed.items()) or "nothing that compiles"
    wanted = ", ".join(f"{k} {v}" for k, v in asked.items())
    raise ToolchainError(
        f"the toolchain asked for is {wanted} ({plan.toolchain.origin}); installed is {here}",
        field="toolchain",
        value=installed,
        legal=asked,
        hint="install those versions, or leave --toolchain out to compile with what is here",
    )


def _seconds(progress: BuildProgress, graph: Graph) -> float:
    return time.monotonic() - progress.running.get(graph.name, time.monotonic())


def _interrupted(done: int, total: int, settings: Settings) -> InterruptedBuildError:
    kept = f"{done} of {total} graphs are kept in {settings.store}"
    return InterruptedBuildError(
        f"interrupted; {kept}",
        hint="the same command goes on from there" if done else "nothing half-made is left",
        details={"graphs_kept": done, "graphs": total},
    )
