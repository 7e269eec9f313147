"""Find a program in the store, or compile it and keep it.

    lookup(key) ── hit ──▶ done
      │ miss
    lock(key) ─▶ look again ─▶ for each graph: lookup, else compile ─▶ publish graph
      ─▶ assemble the program from its graphs ─▶ publish

Graphs are published one by one as they finish, so whatever ends a build (a crash, Ctrl-C, a
full disk) leaves every finished graph for the next one.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from neuroncompile.backends import backend_for
from neuroncompile.errors import CacheMissError, ConfigError
from neuroncompile.output import Output, human_seconds
from neuroncompile.pipeline.plan import Plan, make_plan, recipe_of, target_of
from neuroncompile.pipeline.progress import waiter
from neuroncompile.pipeline.provenance import provenance
from neuroncompile.pipeline.request import BuildRequest
from neuroncompile.pipeline.stores import open_store
from neuroncompile.settings import Settings
from neuroncompile.store import Artifact

__all__ = ["Built", "build_program", "preflight"]


class Built(NamedTuple):
    """A program in the store.

    Attributes:
        plan: what was asked for.
        artifact: the `compile` artifact.
        view: directory with its files.
        hit: it was there already.
        compiled: names of the graphs this call compiled.
        reused: names of the graphs that another program had compiled.
        seconds: wall time of this call.
    """

    plan: Plan
    artifact: Artifact
    view: Path
    hit: bool
    compiled: tuple[str, ...] = ()
    reused: tuple[str, ...] = ()
    seconds: float = 0.0

    @property
    def key(self) -> str:
        """SHA-256 of the spec, 64 hex digits."""
        return self.plan.key


def preflight(request: BuildRequest, settings: Settings) -> Callable[[], None]:
    """What to ask just before a model is downloaded: could a build on this host end well?

    Nothing is refused when the store already has the program that the recipe's facts name.
    """

    def check() -> None:
        recipe = recipe_of(request.model)
        target, _ = target_of(request, recipe)
        try:
            backend_for(target.platform).preflight()
        except ConfigError:
            if recipe is None or not recipe.facts:
                raise
            plan = make_plan(request, settings, from_facts=True)
            if open_store(settings).lookup("compile", plan.key) is None:
                raise

    return check


def build_program(
    plan: Plan, settings: Settings, output: Output, *, require_cached: bool = False
) -> Built:
    """The program of `plan`, from the store or newly compiled.

    Raises:
        CacheMissError: `require_cached` and it is not in the store.
        CompileError: a graph's compiler failed; finished graphs are kept.
        InterruptedBuildError: Ctrl-C; finished graphs are kept.
        StoreError: the store cannot be written.
    """
    began = time.monotonic()
    store = open_store(settings, output)
    artifact = store.lookup("compile", plan.key)
    if artifact is not None:
        return Built(plan, artifact, store.view(artifact), hit=True)
    if require_cached:
        raise CacheMissError(
            f"{plan.key[:12]} is not in {settings.store} ({settings.store_origin})",
            hint="run the same command without --require-cached; with `neuroncompile build "
            "… --check` it names the nearest program and what differs",
            details={"key": plan.key, "store": str(settings.store)},
        )
    with store.single_flight("compile", plan.key, waiter(output, "compiles this program")):
        artifact = store.lookup("compile", plan.key)
        if artifact is not None:
            return Built(plan, artifact, store.view(artifact), hit=True)
        from neuroncompile.pipeline.graphs import compile_graphs

        with compile_graphs(plan, store, settings, output) as result:
            artifact = store.publish(
                "compile",
                plan.spec,
                result.layers,
                provenance=provenance(plan, result.compiled, time.monotonic() - began),
            )
    seconds = time.monotonic() - began
    output.note(f"built {plan.key[:12]} in {human_seconds(seconds)}")
    return Built(
        plan,
        artifact,
        store.view(artifact),
        hit=False,
        compiled=result.compiled,
        reused=result.reused,
        seconds=seconds,
    )
