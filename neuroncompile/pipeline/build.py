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
from pathlib import Path
from typing import NamedTuple

from neuroncompile.errors import CacheMissError, ConfigError
from neuroncompile.output import Output, human_seconds
from neuroncompile.pipeline.plan import Plan
from neuroncompile.pipeline.progress import waiter
from neuroncompile.pipeline.provenance import provenance
from neuroncompile.settings import Settings
from neuroncompile.store import Artifact, Store

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


def preflight() -> None:
    """Refuse before anything is downloaded what no build on this host could finish.

    Raises:
        ToolchainError: no C++ compiler, with the command that installs one.
    """
    from neuroncompile.backends.cpu.compile import check_toolchain

    check_toolchain()


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
    store = Store(settings.store, on_warning=output.warn)
    artifact = store.lookup("compile", plan.key)
    if artifact is not None:
        return Built(plan, artifact, store.view(artifact), hit=True)
    if require_cached:
        raise CacheMissError(
            f"{plan.key[:12]} is not in {settings.store} ({settings.store_origin})",
            hint="run the same command without --require-cached, or `neuroncompile explain "
            "KEY` on a key that `neuroncompile store ls` shows",
            details={"key": plan.key, "store": str(settings.store)},
        )
    if plan.backend != "cpu":
        raise ConfigError(
            f"compiling for {plan.target.platform} is not part of this version",
            field="target",
            value=plan.target.text,
            legal=["cpu", "cpu:<isa>"],
            hint="--dry-run shows config, toolchain and key; --target cpu rehearses the config",
        )
    with store.single_flight("compile", plan.key, waiter(output, "this program")):
        artifact = store.lookup("compile", plan.key)
        if artifact is not None:
            return Built(plan, artifact, store.view(artifact), hit=True)
        from neuroncompile.pipeline.graphs import compile_graphs

        result = compile_graphs(plan, store, settings, output)
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
