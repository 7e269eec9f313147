"""Find a program in the store or a tier, or compile it and keep it.

    lookup(key) ── hit ──▶ done
      │ miss
    lock(key) ─▶ look again ─▶ tiers ─▶ for each graph: lookup, tiers, else compile
      ─▶ publish graph ─▶ assemble the program from its graphs ─▶ publish

Graphs are published one by one as they finish, so whatever ends a build (a crash, Ctrl-C, a
full disk) leaves every finished graph for the next one.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from neuroncompile.backends import backend_for
from neuroncompile.errors import ConfigError
from neuroncompile.output import Output, human_seconds
from neuroncompile.pipeline.plan import Plan, locked_for, make_plan, toolchain_of
from neuroncompile.pipeline.progress import waiter
from neuroncompile.pipeline.provenance import provenance
from neuroncompile.pipeline.recipes import recipe_of, target_of
from neuroncompile.pipeline.request import BuildRequest
from neuroncompile.pipeline.sharing import Tiers
from neuroncompile.pipeline.stores import open_store
from neuroncompile.settings import Settings
from neuroncompile.store import Artifact, Store

if TYPE_CHECKING:
    from neuroncompile.pipeline.graphs import Assembled

__all__ = ["Built", "build_program", "preflight"]


MISS = (
    "run the same command without --require-cached; with `neuroncompile build … --check` it names "
    "the nearest program and what differs"
)


class Built(NamedTuple):
    """A program in the store.

    Attributes:
        plan: what was asked for.
        artifact: the `compile` artifact.
        view: directory with its files.
        hit: nothing was compiled.
        compiled: names of the graphs this call compiled.
        reused: names of the graphs that another program had compiled.
        seconds: wall time of this call.
        tier: URL of the tier it was pulled from, if it was.
    """

    plan: Plan
    artifact: Artifact
    view: Path
    hit: bool
    compiled: tuple[str, ...] = ()
    reused: tuple[str, ...] = ()
    seconds: float = 0.0
    tier: str | None = None

    @property
    def source(self) -> str:
        """`store`, `tier` or `compiler`: where it came from."""
        if not self.hit:
            return "compiler"
        return "store" if self.tier is None else "tier"

    @property
    def key(self) -> str:
        """SHA-256 of the spec, 64 hex digits."""
        return self.plan.key


def preflight(request: BuildRequest, settings: Settings, tiers: Tiers) -> Callable[[], None]:
    """What to ask just before a model is downloaded: could a build on this host end well?

    Nothing is refused when the store or a tier has the program that the recipe's facts name.
    """

    def check() -> None:
        recipe = recipe_of(request.model)
        target, _ = target_of(request, recipe)
        backend = backend_for(target.platform)
        locked = locked_for(request, settings)
        try:
            backend.preflight(toolchain_of(backend, request, settings, recipe, locked).python)
        except ConfigError:
            if recipe is None or not recipe.facts:
                raise
            plan = make_plan(request, settings, from_facts=True)
            store = open_store(settings)
            if store.lookup("compile", plan.key) is None and not (
                tiers and tiers.having(store, "compile", plan.key)
            ):
                raise

    return check


def build_program(
    plan: Plan,
    settings: Settings,
    output: Output,
    tiers: Tiers,
    *,
    require_cached: bool = False,
) -> Built:
    """The program of `plan`, from the store, a tier or newly compiled.

    Raises:
        CacheMissError: `require_cached`, and neither the store nor a tier has it.
        TierError: `require_cached`, and a tier that might have it fails.
        CompileError: a graph's compiler failed; finished graphs are kept.
        InterruptedBuildError: Ctrl-C; finished graphs are kept.
        StoreError: the store cannot be written.
    """
    began = time.monotonic()
    store = open_store(settings, output)
    artifact = store.lookup("compile", plan.key)
    if artifact is not None:
        store.count("hit", "compile", plan.key)
        return Built(plan, artifact, store.view(artifact), hit=True)
    if require_cached and not (tiers and tiers.having(store, "compile", plan.key)):
        raise tiers.miss(f"{plan.key[:12]} is", plan.key, MISS)
    with store.single_flight("compile", plan.key, waiter(output, "compiles this program")):
        artifact = store.lookup("compile", plan.key)
        if artifact is not None:
            store.count("hit", "compile", plan.key)
            return Built(plan, artifact, store.view(artifact), hit=True)
        if tiers and (found := tiers.pull(store, "compile", plan.key)):
            store.count("hit", "compile", plan.key)
            view = store.view(found.artifact)
            seconds = time.monotonic() - began
            return Built(plan, found.artifact, view, hit=True, seconds=seconds, tier=found.url)
        if require_cached:
            raise tiers.miss(f"{plan.key[:12]} is", plan.key, MISS)
        with _compiling(plan, store, settings, output, tiers) as result:
            artifact = store.publish(
                "compile",
                plan.spec,
                result.layers,
                provenance=provenance(
                    plan, result.compiled, time.monotonic() - began, **result.facts
                ),
            )
            store.count("miss", "compile", plan.key)
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


def _compiling(
    plan: Plan, store: Store, settings: Settings, output: Output, tiers: Tiers
) -> AbstractContextManager[Assembled]:
    """Graph by graph on cpu; whole on Neuron, where graphs of two builds do not mix."""
    if plan.backend == "cpu":
        from neuroncompile.pipeline.graphs import compile_graphs

        return compile_graphs(plan, store, settings, output, tiers)
    from neuroncompile.pipeline.program import compile_whole

    return compile_whole(plan, store, settings, output)
