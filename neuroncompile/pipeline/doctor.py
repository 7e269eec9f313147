"""`doctor`: can this machine compile for a target, and run it? What is wrong, and what fixes it.

A check never raises: on a broken machine the finding is what it could not find out.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from neuroncompile.errors import NeuronCompileError
from neuroncompile.hardware.targets import Target, host_arch, parse_target
from neuroncompile.output import Output
from neuroncompile.pipeline.doctor_devices import CHECKS as DEVICE_CHECKS
from neuroncompile.pipeline.doctor_host import CHECKS as HOST_CHECKS
from neuroncompile.pipeline.doctor_neuron import CHECKS as NEURON_CHECKS
from neuroncompile.pipeline.finding import Finding, Patient
from neuroncompile.settings import Settings

__all__ = ["doctor_command"]

MARKS = {"ok": "ok", "warning": "warn", "problem": "PROBLEM"}


class Verdict(NamedTuple):
    """Whether the target can be compiled for and run here."""

    compile: bool
    run: bool


def doctor_command(
    target: str,
    toolchain: str | None,
    settings: Settings,
    output: Output,
    *,
    purpose: str = "run",
    refused: NeuronCompileError | None = None,
) -> int:
    """Run `neuroncompile doctor`: 0 when the purpose can be met, 10 when it cannot.

    Args:
        settings: with `refused`, those of a user without any of ours.
        purpose: "run" or "build".
        refused: why the user's own settings cannot be read.

    Raises:
        ConfigError: the target is none.
    """
    findings = [] if refused is None else [_unreadable(refused)]
    aim, unfit = _target(target)
    patient = Patient(aim, toolchain or settings.toolchain, settings)
    checks = [*HOST_CHECKS, *(() if patient.target.is_cpu else (*NEURON_CHECKS, *DEVICE_CHECKS))]
    findings += unfit
    findings += [finding for check in checks for finding in _looked(check, patient)]
    verdict = Verdict(
        not any(f.stops in ("build", "both") for f in findings if f.level == "problem"),
        not any(f.stops in ("run", "both") for f in findings if f.level == "problem"),
    )
    output.table(
        ("", "SUBJECT", "FINDING"), [(MARKS[f.level], f.subject, f.what) for f in findings]
    )
    for finding in findings:
        if finding.level != "ok":
            output.line()
            output.line(f"{finding.subject}: {finding.what}")
            output.line(f"  why:  {finding.why}")
            output.line(f"  fix:  {finding.fix}")
    output.line()
    name = patient.target.text
    output.line(f"compile for {name}: {'yes' if verdict.compile else 'no'}")
    output.line(f"run for {name}: {'yes' if verdict.run else 'no'}")
    able = verdict.compile if purpose == "build" else verdict.run
    code = 0 if able else 10
    output.result(_document(patient, findings, verdict), exit_code=code)
    return code


def _unreadable(error: NeuronCompileError) -> Finding:
    why = "every command stops for it; what follows is without these settings"
    return Finding("settings", "problem", str(error), why, error.hint or "correct it", "both")


def _target(text: str) -> tuple[Target, list[Finding]]:
    """The target, and what is to say of a host whose own processor is none."""
    try:
        return parse_target(text or "cpu"), []
    except (NeuronCompileError, OSError) as error:
        if text not in ("", "cpu"):
            raise
        hint = getattr(error, "hint", None) or "build on another host"
        why = "programs for cpu are made for one of the levels"
        target = Target("cpu", arch=host_arch())
        return target, [Finding("processor", "problem", str(error), why, hint, "both")]


def _looked(check: Callable[[Patient], list[Finding]], patient: Patient) -> list[Finding]:
    try:
        return check(patient)
    except NeuronCompileError as error:
        what, fix = str(error), error.hint or "read the message"
    except Exception as error:
        what, fix = f"the check itself failed: {error!r}", "please report it"
    return [Finding(check.__name__.replace("_", " "), "warning", what, "it is not known", fix)]


def _document(patient: Patient, findings: list[Finding], verdict: Verdict) -> dict[str, Any]:
    return {
        "target": patient.target.text,
        "can_compile": verdict.compile,
        "can_run": verdict.run,
        "findings": [finding._asdict() for finding in findings],
    }
