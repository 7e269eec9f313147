"""What is done about a failed compile: try again, try otherwise, or give up and say so.

    intermittent   the same again, as often as the failure allows
    host_memory    again, alone; then a way around, or up to the user: more memory is no retry
    environment    a poisoned entry of the vendor's cache is removed once; a copy that a shared
                   file system lost is made once more; the rest is for the user to repair
    config, compiler_bug   a documented way around, if --fallback allows it; remembered
    interrupted, unknown   given up

Nothing here compiles, waits or deletes; the caller does what it is told.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

from neuroncompile.backends.nxdi.failures import Failure
from neuroncompile.errors import (
    CompileError,
    InterruptedBuildError,
    NeuronCompileError,
    RetryError,
    RunError,
    StoreError,
)

__all__ = ["Action", "Attempt", "Fallback", "decide", "offers", "to_error"]
__all__ += ["with_batch", "with_buckets"]

MOST_ATTEMPTS = 5
"""Compiles of one graph, whatever comes: failures of several kinds could else take turns."""

LAST_LINES = 12

RUNTIME: tuple[str, ...] = (
    *("busy", "placement", "driver_missing", "driver_old", "neff_version", "version"),
    *("hardware", "hardware_reset", "collectives", "network", "timeout"),
    *("numerical", "model", "model_oob", "caller", "runtime"),
)
"""Classes of a device that is loading or running, not of a compiler."""


class Fallback(NamedTuple):
    """A documented way around a failure: another program, under another key.

    Attributes:
        name: "-O1", "bucket" or "batch".
        text: what it would build instead, for a person.
        optlevel: level of -O, or None to leave it.
        changes: keywords of the neuron config with their new values.
    """

    name: str
    text: str
    optlevel: str | None
    changes: Mapping[str, Any]


class Attempt(NamedTuple):
    """A compile of the graph that has failed.

    Attributes:
        jobs: compilers that ran at once, this one included.
        fallback: the name of the way around that it tried; "" for what was asked.
        cleaned: entries of the vendor's cache had been removed for it.
    """

    failure: Failure
    jobs: int = 1
    fallback: str = ""
    cleaned: bool = False


class Action(NamedTuple):
    """What comes next.

    Attributes:
        do: "retry" the same; "retry_alone", with `jobs` compilers at once; "clean", remove
            `entries` and retry; "fallback", build `fallback` instead; "give_up".
        why: one line for a person.
        entries: directories in the vendor's cache. They come from a log: remove only what lies
            in the cache that the build was given.
        remember: the failure of what was asked is sure to come again: keep it for a day.
    """

    do: str
    why: str
    jobs: int | None = None
    entries: tuple[str, ...] = ()
    fallback: Fallback | None = None
    remember: bool = False


def decide(
    attempts: Sequence[Attempt],
    *,
    fallbacks: Sequence[Fallback] = (),
    take: bool = False,
    most: int = MOST_ATTEMPTS,
) -> Action:
    """The next step after the last of `attempts`.

    Args:
        attempts: all of this graph, oldest first; at least one.
        fallbacks: ways around, as `offers` gives them for what was asked.
        take: whether they may be taken (--fallback).
        most: attempts in all.
    """
    *before, last = attempts
    failure = last.failure
    asked = [attempt.failure for attempt in attempts if not attempt.fallback]
    remember = bool(asked) and asked[-1].deterministic
    if failure.kind == "interrupted" or len(attempts) >= most:
        return Action("give_up", failure.reason, remember=remember)
    again = sum(a.failure.same_as(failure) and a.fallback == last.fallback for a in before)
    if again < failure.retries:
        return Action("retry", f"{failure.reason}; again, {again + 1} of {failure.retries} retries")
    if failure.kind == "host_memory" and last.jobs > 1:
        return Action("retry_alone", f"{failure.reason}; again, alone", jobs=1)
    if failure.entries and not any(attempt.cleaned for attempt in attempts):
        return Action(
            "clean",
            "the vendor's cache keeps an earlier failure; removed, and compiled again",
            entries=failure.entries,
        )
    tried = {attempt.fallback for attempt in attempts}
    untried = [fallback for fallback in fallbacks if fallback.name not in tried]
    if untried and take:
        return Action(
            "fallback",
            f"{failure.reason}; {untried[0].text} instead",
            fallback=untried[0],
            remember=remember,
        )
    return Action("give_up", failure.reason, remember=remember)


# ---- ways around


def offers(
    failure: Failure, neuron: Mapping[str, Any], optlevel: str | None = None
) -> tuple[Fallback, ...]:
    """The documented ways around that make a difference to this program.

    Args:
        neuron: the neuron config that failed, buckets resolved.
        optlevel: its -O level; None for the vendor's own, -O1 for context encoding and -O2 for
            token generation (NxDI's models/model_wrapper.py).
    """
    found = []
    for name in failure.fallbacks:
        if name.startswith("-O"):
            offer = _level(name, failure, optlevel)
        elif name == "bucket":
            offer = _bucket(failure, neuron)
        else:
            offer = _batch(neuron)
        if offer is not None:
            found.append(offer)
    return tuple(found)


def _level(name: str, failure: Failure, optlevel: str | None) -> Fallback | None:
    level = name.removeprefix("-O")
    current = optlevel or ("1" if _encodes(failure) else "2" if failure.submodel else None)
    return None if level == current else Fallback(name, name, level, {})


def _encodes(failure: Failure) -> bool:
    return failure.submodel.startswith(("context_encoding", "vision"))


def _bucket(failure: Failure, neuron: Mapping[str, Any]) -> Fallback | None:
    """Without the largest bucket, if that is the one that failed."""
    encodes = _encodes(failure)
    name = "context_encoding_buckets" if encodes else "token_generation_buckets"
    buckets = neuron.get(name) or ()
    if len(buckets) < 2 or not all(isinstance(bucket, int) for bucket in buckets):
        return None
    *rest, largest = sorted(buckets)
    if failure.bucket not in (None, largest):
        return None
    changes = with_buckets(neuron, name, rest)
    what = "prompts" if encodes else "sequences"
    return Fallback("bucket", f"{what} of at most {rest[-1]} tokens", None, changes)


def with_buckets(neuron: Mapping[str, Any], name: str, buckets: Sequence[int]) -> dict[str, Any]:
    """The keywords to change for other buckets: with the largest one goes the length it serves.

    Args:
        name: "context_encoding_buckets" or "token_generation_buckets".
        buckets: ascending, at least one.
    """
    if name == "context_encoding_buckets":
        return {name: list(buckets), "max_context_length": buckets[-1]}
    changes: dict[str, Any] = {name: list(buckets), "seq_len": buckets[-1]}
    prompts = neuron.get("context_encoding_buckets") or ()
    if prompts and max(prompts) > buckets[-1]:
        shorter = [bucket for bucket in prompts if bucket < buckets[-1]]
        changes |= with_buckets({}, "context_encoding_buckets", [*shorter, buckets[-1]])
    return changes


def with_batch(neuron: Mapping[str, Any], batch: int) -> dict[str, Any]:
    """The keywords to change for another batch size; one of its own for a submodel stays."""
    names = ("batch_size", "max_batch_size", "tkg_batch_size", "ctx_batch_size")
    return {name: batch for name in names if neuron.get(name) == neuron.get("batch_size")}


def _batch(neuron: Mapping[str, Any]) -> Fallback | None:
    batch = (neuron.get("batch_size") or 1) // 2
    if batch < 1:
        return None
    return Fallback("batch", f"a batch size of {batch}", None, with_batch(neuron, batch))


# ---- the error


def to_error(
    failure: Failure,
    *,
    log: str | None = None,
    lines: Sequence[str] = (),
    tries: int = 1,
    offered: Collection[Fallback] = (),
    key: str = "",
) -> NeuronCompileError:
    """The error for a failure that was given up.

    A kill for memory is a CompileError even though it may pass elsewhere: 75 promises that the
    same command is worth repeating, and this one has been repeated alone. A lost copy in a
    shared cache does deserve 75. Full disks are the store's, devices the runtime's.

    Args:
        log: path of the compiler's log.
        lines: of that log; the last ones are kept.
        tries: attempts in all.
        offered: ways around that were not taken.
        key: of the spec, 64 hex digits.

    Returns:
        CompileError, StoreError (disk full), InterruptedBuildError, RetryError (a lost copy) or
        RunError (a device), with the whole failure in `details`.
    """
    cls = _class_of(failure)
    times = f" ({tries} times)" if tries > 1 else ""
    where = failure.graph or "the program"
    doing = "running" if cls is RunError else "compiling"
    message = f"{doing} {where} failed{times}: {failure.reason}"
    if cls is InterruptedBuildError:
        message = f"interrupted while compiling {where}"
    hint = failure.remedy
    if failure.kind == "intermittent" and tries > 1:
        hint = f"--reproduce 20 measures how often it fails; {hint}"
    if offered:
        hint = f"--fallback builds with {' or '.join(f.text for f in offered)} instead; {hint}"
    if log is not None and cls is not InterruptedBuildError:
        hint = f"{hint} (log: {log})"
    return cls(message, hint=hint, details=_details(failure, log, lines, tries, key))


def _class_of(failure: Failure) -> type[NeuronCompileError]:
    if failure.cls == "disk_full":
        return StoreError
    if failure.kind == "interrupted":
        return InterruptedBuildError
    if failure.cls in ("cache_io", "transient"):
        return RetryError
    return RunError if failure.cls in RUNTIME or failure.code.startswith("NRT_") else CompileError


def _details(
    failure: Failure, log: str | None, lines: Sequence[str], tries: int, key: str
) -> dict[str, Any]:
    return {
        "code": failure.code or None,
        "class": failure.cls,
        "kind": failure.kind,
        "graph": failure.graph or None,
        "submodel": failure.submodel or None,
        "index": failure.index,
        "bucket": failure.bucket,
        "batch": failure.batch,
        "target": failure.target or None,
        "versions": dict(failure.versions),
        "meaning": failure.meaning,
        "remedy": failure.remedy,
        "figures": dict(failure.figures),
        "line": failure.line,
        "how": failure.reason,
        "key": key or None,
        "log": log,
        "last_lines": [line.rstrip() for line in lines if line.strip()][-LAST_LINES:],
        "attempts": tries,
        "deterministic": failure.deterministic,
    }
