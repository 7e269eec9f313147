"""One program for Neuron, compiled whole by the toolchain's own interpreter.

Nothing half-made is kept here: finished graphs are in the vendor's cache, which the next attempt
finds, and the program is published when all of it has been checked.
"""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from neuroncompile.backends.nxdi.compile import Compiled, Order, compile_program, graph_name
from neuroncompile.backends.nxdi.failures import Failure
from neuroncompile.backends.nxdi.policy import Action, Attempt, Fallback, decide, offers, to_error
from neuroncompile.backends.nxdi.process import OrderFailed, OverLimit, WorkerEnded
from neuroncompile.errors import (
    CompileError,
    InterruptedBuildError,
    RetryError,
    RunError,
    StoreError,
)
from neuroncompile.keys.exclusions import NEURON_EXCLUSIONS, without
from neuroncompile.output import Output
from neuroncompile.pipeline.diagnosis import Diagnosis, tail
from neuroncompile.pipeline.graphs import Assembled, refuse_rejected
from neuroncompile.pipeline.plan import Plan
from neuroncompile.pipeline.progress import BuildProgress
from neuroncompile.pipeline.redact import Redactor
from neuroncompile.pipeline.request import WayAround
from neuroncompile.settings import Settings
from neuroncompile.store import Layer, Store

__all__ = ["compile_whole", "draft_reference", "order_of", "reference_of"]

NEEDS_WEIGHTS = ":NeuronQwen3VLForCausalLM"
"""It interpolates position embeddings on the host (modeling_qwen3_vl_vision.py); none is in a
graph, so the key stays without weights."""


@contextmanager
def compile_whole(
    plan: Plan, store: Store, settings: Settings, output: Output
) -> Iterator[Assembled]:
    """Compile the program of `plan`; its files last until the end of the block.

    Raises:
        ToolchainError: no interpreter for it, or one that holds other versions.
        CompileError: the compiler failed; what can be known of it is in the details.
        StoreError: no space left.
        InterruptedBuildError: Ctrl-C.
    """
    build = _Build(plan, store, settings, output)
    scratch = store.scratch("compile")
    try:
        compiled = build.run(scratch)
    except (CompileError, RunError, RetryError):
        raise  # the log stays
    except BaseException:
        shutil.rmtree(scratch, ignore_errors=True)
        raise
    try:
        yield Assembled(
            [Layer(f.title, path=f.path, media_type=f.media_type) for f in compiled.files],
            tuple(build.compiled),
            tuple(build.reused),
            {"retries": build.retries, "peak_memory": compiled.peak_memory, "jobs": build.jobs},
        )
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def reference_of(plan: Plan) -> str:
    """The class that runs the model: "module:Class", or the user's "/path:Class"."""
    from neuroncompile.models.architecture import architecture_of
    from neuroncompile.models.families import nxdi_class

    if plan.custom is not None:
        return f"{plan.custom.source}:{plan.custom.name}"
    version = plan.toolchain.packages.get("neuronx-distributed-inference")
    return nxdi_class(architecture_of(plan.model.config), version)


def order_of(plan: Plan, python: str) -> Order:
    """What a worker compiles: the key's fields, so that one key means one program."""
    draft = None
    if plan.draft is not None:
        draft = {
            "model": plan.draft.config,
            "neuron": without(plan.draft_neuron, NEURON_EXCLUSIONS, nested=True),
            "reference": draft_reference(plan),
        }
    return Order(
        spec=plan.spec,
        reference=reference_of(plan),
        model=plan.model.config,
        neuron=without(plan.config.plain(), NEURON_EXCLUSIONS, nested=True),
        draft=draft,
        python=python,
    )


def draft_reference(plan: Plan) -> str | None:
    """The draft's class where it is of another family; an EAGLE head runs in its target's."""
    from neuroncompile.errors import ModelError
    from neuroncompile.models.architecture import architecture_of
    from neuroncompile.models.families import nxdi_class

    assert plan.draft is not None
    if plan.draft is plan.model or plan.config.get("enable_eagle_speculation"):
        return None
    try:
        own = architecture_of(plan.draft.config)
    except ModelError:
        return None
    version = plan.toolchain.packages.get("neuronx-distributed-inference")
    found = nxdi_class(own, version)
    return None if found == reference_of(plan) else found


class _Build:
    """The attempts at one program."""

    def __init__(self, plan: Plan, store: Store, settings: Settings, output: Output) -> None:
        self.plan, self.store, self.settings, self.output = plan, store, settings, output
        self.diagnosis = Diagnosis(plan, settings, output)
        self.progress = BuildProgress(output, total=0)
        self.compiled: list[str] = []
        self.reused: list[str] = []
        self.attempts: dict[str, list[Attempt]] = {}
        self.failures: list[tuple[str, Failure]] = []
        self.fresh: list[Any] = []
        self.retries = 0
        self.jobs = self.diagnosis.jobs

    def run(self, scratch: Path) -> Compiled:
        self.diagnosis.check_nodes()
        self.diagnosis.check_toolchain()
        refuse_rejected(self.store, self.settings, "compile", self.plan.key, "this program")
        self.output.note(
            f"compiling {self.plan.key[:12]} for {self.plan.target.text} with "
            f"{self.plan.toolchain.name}, {self.jobs} at once"
        )
        while True:
            try:
                return compile_program(
                    self._order(),
                    scratch=scratch,
                    cache=self.settings.cache,
                    jobs=self.jobs,
                    limits=self.diagnosis.limits(),
                    on_event=self._on_event,
                    on_tick=self.progress.tick,
                    fresh=self.fresh,
                    on_wait=self._wait,
                    keep=lambda work: _keep_graphs(work, scratch / "work"),
                )
            except KeyboardInterrupt:
                raise self._interrupted() from None
            except OrderFailed as error:
                if error.head.get("refused"):
                    raise self.diagnosis.refused(error) from None
                failure = self._failure_of(error, scratch)
            except (WorkerEnded, OverLimit) as error:
                failure = self.diagnosis.of_program(error, scratch)
            except CompileError as error:  # outputs that are not whole
                if self.fresh:
                    raise
                self.fresh = error.details["suspects"] or [None]
                self.retries += 1
                self.output.warn(f"{error}; compiling it again")
                continue
            except OSError as error:
                raise StoreError(
                    f"the compilers' files cannot be written: {error.strerror or error}",
                    hint=f"free space on {self.store.root} and /tmp, then run the same command",
                ) from None
            self._again_or_raise(failure, scratch)

    def _order(self) -> Order:
        """The order, with the checkpoint for a class that reads it when it is constructed."""
        order = order_of(self.plan, self.diagnosis.python)
        if not order.reference.endswith(NEEDS_WEIGHTS):
            return order
        from neuroncompile.pipeline.shards import weight_paths

        return order._replace(weights=weight_paths(self.plan.model, self.settings, self.output))

    # --- what the worker tells

    def _on_event(self, event: Mapping[str, Any]) -> Mapping[str, Any] | None:
        if event["event"] == "stage":
            if event["name"] == "tracing":
                self.progress.total = len(event["graphs"])
            self.output.note(f"  {event['name']}", level=1)
            return None
        name = graph_name(event)
        state = event["state"]
        if state == "start":
            self.progress.start(name)
        elif state == "failed":
            return self._decide(name, event)
        else:
            (self.reused if state == "reused" else self.compiled).append(name)
            self.progress.finish(name, how="kept" if state == "reused" else "compiled")
        return None

    def _wait(self) -> None:
        self.output.note("another build of this family is compiling; its turn is first")

    def _decide(self, name: str, event: Mapping[str, Any]) -> Mapping[str, Any]:
        """Whether this graph is compiled again, while the others go on."""
        self.progress.running.pop(name, None)
        failure = self.diagnosis.of_graph(event["text"].splitlines(), event)
        action = self._action(name, failure)
        if action.do not in ("retry", "retry_alone", "clean"):  # a worker cleans by itself
            self.failures.append((name, failure))
            return {"again": False}
        self.retries += 1
        self.jobs = action.jobs or self.jobs
        self.output.warn(f"{name}: {action.why}")
        return {"again": True, "alone": action.do == "retry_alone"}

    def _again_or_raise(self, failure: Failure, scratch: Path) -> None:
        """After the whole worker has ended, for a graph's failure or its own."""
        name = self.failures[0][0] if self.failures else ""
        # of a graph it was decided that it is not compiled again; now, what instead
        action = self._action(name, None if self.failures else failure, instead=True)
        if action.do in ("retry", "retry_alone"):
            self.retries += 1
            self.jobs = action.jobs or self.jobs
            self.progress.running.clear()
            self.output.warn(action.why)
            return
        log = scratch / "compile.log"
        if action.remember:
            data = log.read_bytes() if log.is_file() else None
            self.store.remember_failure("compile", self.plan.key, failure.reason, log=data)
        if action.fallback is not None:
            way = action.fallback
            raise WayAround(failure.reason, way.text, way.optlevel, way.changes)
        redactor = Redactor.here()
        error = to_error(
            failure,
            log=str(log),
            lines=[redactor.text(line) for line in tail(log)],
            tries=len(self.attempts[name]),
            offered=self._offers(failure),
            key=self.plan.key,
        )
        bundle = self._bundle(failure, scratch)
        if bundle is not None:
            error.details["bundle"] = str(bundle)
        if len(self.failures) > 1:
            error.details["failures"] = [f"{name}: {f.reason}" for name, f in self.failures]
        raise error

    def _action(self, name: str, failure: Failure | None, *, instead: bool = False) -> Action:
        """What to do after the attempts at a graph ("" for the program), `failure` the newest."""
        attempts = self.attempts.setdefault(name, [])
        if failure is not None:
            attempts.append(Attempt(failure, self.jobs, cleaned=True))
        last = attempts[-1].failure
        take = self.plan.request.fallback and instead
        return decide(attempts, fallbacks=self._offers(last), take=take)

    def _offers(self, failure: Failure) -> tuple[Fallback, ...]:
        return offers(failure, self.plan.config.plain(), self.plan.optlevel)

    def _bundle(self, failure: Failure, scratch: Path) -> Path | None:
        """All that a report needs, without secrets; a failure is not worth another one."""
        from neuroncompile.pipeline.bundle import write_bundle

        path = self.settings.cache / "failures" / f"{self.plan.key[:12]}.tar.gz"
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            write_bundle(
                path,
                failure,
                spec=self.plan.spec,
                work=scratch / "work",
                log=scratch / "compile.log",
            )
        except (StoreError, OSError) as error:
            self.output.note(f"no bundle for a report: {error}")
            return None
        finally:
            shutil.rmtree(scratch / "work", ignore_errors=True)
        self.output.note(f"for a report, with secrets and paths taken out: {path}")
        return path

    # --- what a failure is

    def _failure_of(self, error: OrderFailed, scratch: Path) -> Failure:
        """The cause of a worker's error: the graph that failed first, else its own words."""
        return self.failures[0][1] if self.failures else self.diagnosis.of_program(error, scratch)

    def _interrupted(self) -> InterruptedBuildError:
        done = len(self.compiled) + len(self.reused)
        return InterruptedBuildError(
            f"interrupted; {done} of {self.progress.total} graphs are kept in the compiler's cache",
            hint="the same command goes on from there" if done else "nothing half-made is left",
            details={"graphs_kept": done, "graphs": self.progress.total},
        )


def _keep_graphs(work: Path, kept: Path) -> None:
    """The graphs and commands of a failed compile, without what was made of them."""
    shutil.rmtree(kept, ignore_errors=True)
    with contextlib.suppress(OSError, shutil.Error):
        shutil.copytree(work, kept, ignore=shutil.ignore_patterns("*.neff", "*.pt", "weights"))
