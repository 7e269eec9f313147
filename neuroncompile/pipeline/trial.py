"""A compile that is only watched fail: `build --reproduce N` and `build --reduce`.

Each runs from nothing, with a cache of its own that is thrown away, and nothing is published.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from neuroncompile.backends.nxdi.compile import Order, compile_program
from neuroncompile.backends.nxdi.failures import Failure
from neuroncompile.backends.nxdi.process import OrderFailed, OverLimit, WorkerEnded
from neuroncompile.errors import CompileError, ConfigError, UsageError
from neuroncompile.output import Output
from neuroncompile.pipeline.diagnosis import Diagnosis
from neuroncompile.pipeline.plan import Plan
from neuroncompile.pipeline.program import order_of
from neuroncompile.pipeline.reduce import Candidate, Step, reduce_config
from neuroncompile.pipeline.reproduce import crash_rate, tries_for
from neuroncompile.pipeline.stores import open_store
from neuroncompile.settings import Settings

__all__ = ["reduce_command", "reproduce_command"]


class Trials:
    """Compiles of one plan, or of what is left of it."""

    def __init__(self, plan: Plan, settings: Settings, output: Output) -> None:
        if plan.backend == "cpu":
            raise UsageError(
                "--reproduce and --reduce are for Neuron targets", hint="name one with --target"
            )
        self.plan, self.settings, self.output = plan, settings, output
        self.store = open_store(settings, output)
        self.diagnosis = Diagnosis(plan, settings, output)
        self.diagnosis.check_toolchain()

    def order(self) -> Order:
        return order_of(self.plan, self.diagnosis.python)

    def run(self, order: Order) -> Failure | None:
        """Compile once; the failure, or None.

        Raises:
            ConfigError: NxDI does not build such a config at all.
        """
        scratch = self.store.scratch("trial")
        first: list[Failure] = []

        def on_event(event: Mapping[str, Any]) -> Mapping[str, Any] | None:
            if event.get("state") == "failed":
                first.append(self.diagnosis.of_graph(event["text"].splitlines(), event))
            return {"again": False}

        try:
            compile_program(
                order,
                scratch=scratch,
                cache=scratch / "cache",
                jobs=self.diagnosis.jobs,
                limits=self.diagnosis.limits(),
                on_event=on_event,
                on_tick=lambda silent: None,
            )
        except OrderFailed as error:
            if error.head.get("refused"):
                raise self.diagnosis.refused(error) from None
            return first[0] if first else self.diagnosis.of_program(error, scratch)
        except (WorkerEnded, OverLimit) as error:
            return self.diagnosis.of_program(error, scratch)
        except CompileError as error:
            return self.diagnosis.of_outputs(error)
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
        return None


def reproduce_command(plan: Plan, runs: int, settings: Settings, output: Output) -> int:
    """Compile `runs` times from nothing and say how often it fails."""
    trials = Trials(plan, settings, output)
    order = trials.order()

    def told(number: int, failure: Failure | None) -> None:
        what = "compiled" if failure is None else failure.reason
        output.note(f"  {number}/{runs} {what}")

    rate = crash_rate(lambda number: trials.run(order), runs, on_run=told)
    low, high = rate.interval()
    output.line(rate.verdict)
    code = 6 if rate.failures else 0
    output.result(
        {
            "key": plan.key,
            "runs": rate.runs,
            "failed": len(rate.failures),
            "rate": rate.rate,
            "interval": [low, high],
            "codes": rate.codes,
        },
        exit_code=code,
    )
    return code


def reduce_command(plan: Plan, settings: Settings, output: Output, *, limit: int = 60) -> int:
    """Shrink a program that fails while it fails in the same way, and write what is left."""
    trials = Trials(plan, settings, output)
    order = trials.order()
    output.note("compiling once, to see it fail")
    rate = crash_rate(lambda number: trials.run(order), 1)
    if not rate.failures:
        output.line("it compiles; there is nothing to reduce")
        output.result({"key": plan.key, "failed": False, "reduced": None})
        return 0
    original = rate.failures[0]
    output.note(f"fails with {original.reason}")
    target = settings.cache / "failures" / f"{plan.key[:12]}-reduced"
    target.mkdir(parents=True, exist_ok=True)
    answers, save = _answers(target / "answers.json")

    def told(step: Step) -> None:
        save()
        output.note(f"  {step.number}. {step.change}: {step.outcome}")

    end = reduce_config(
        Candidate(dict(order.model), dict(order.neuron)),
        original,
        lambda candidate: trials.run(_with(order, candidate)),
        limit=limit,
        tries=tries_for(0.5) if original.kind == "intermittent" else 1,
        answers=answers,
        on_step=told,
    )
    save()
    for name, content in (
        ("config.json", end.candidate.model),
        ("neuron.json", end.candidate.neuron),
    ):
        (target / name).write_text(json.dumps(content, indent=1, sort_keys=True) + "\n")
    for change in end.changes:
        output.line(change)
    more = "" if end.complete else f"; stopped after {end.calls} compiles, the same command goes on"
    output.line(f"reduced  {target}  ({end.calls} compiles{more})")
    output.result(
        {
            "key": plan.key,
            "failed": True,
            "reason": original.reason,
            "code": original.code or None,
            "reduced": {"model": dict(end.candidate.model), "neuron": dict(end.candidate.neuron)},
            "changes": list(end.changes),
            "compiles": end.calls,
            "complete": end.complete,
            "path": str(target),
        },
        exit_code=6,
    )
    return 6


def _with(order: Order, candidate: Candidate) -> Order:
    """The order for a candidate; its spec decides directory and environment alone."""
    lnc = candidate.neuron.get("logical_nc_config")
    if lnc is not None and lnc != order.spec["target"].get("lnc"):
        raise ConfigError("the logical cores are the target's", field="logical_nc_config")
    spec = {**order.spec, "model": candidate.model, "neuron": candidate.neuron}
    return order._replace(spec=spec, model=candidate.model, neuron=candidate.neuron)


def _answers(path: Path) -> tuple[dict[str, str], Callable[[], None]]:
    """What an earlier search has found out, and how to keep it."""
    try:
        known = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        known = {}
    answers = {str(k): str(v) for k, v in known.items()} if isinstance(known, dict) else {}

    def save() -> None:
        partial = path.with_suffix(".partial")
        partial.write_text(json.dumps(answers, indent=1, sort_keys=True) + "\n")
        partial.replace(path)

    return answers, save
