"""Tell a compiler's failures apart, by what it prints.

neuronx-cc ends with status 70 whether it has refused a graph, crashed, or been killed for memory,
so the words decide. The cause stands in an NCC_ line, `[ERROR] [NCC_EOOM002] cause - resolution`;
an `[F137]` around it is only the envelope, wherever it is printed. Older releases write
`<date>Z [XCG815] …`, without NCC_. Of the status only a signal counts, and only without words.

Some of the compiler's own errors are not the graph's: releases before SDK 2.31 have data races
in the check of control flow, the order of constant propagation and some heuristics (release notes
of 2.30 and 2.31). The notes name no codes, so there an internal error that the table does not
explain, and a crash without a code, count as intermittent.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from neuroncompile.backends.nxdi.figures import compiler_memory, figures, in_words
from neuroncompile.backends.nxdi.places import Log, kernel_files, place
from neuroncompile.hardware.codes import (
    CompilerCode,
    LogLine,
    RuntimeStatus,
    compiler_code,
    log_lines,
    runtime_status,
)

__all__ = ["KINDS", "Failure", "bad_output", "classify"]

KINDS = {
    "config": "bad_argument kernel_limit instruction_limit unsupported_op dynamic_shape oom_device "
    "unsupported_dtype integer_downcast mx_contract bad_graph rejected config model model_oob "
    "graph_break numerical",
    "compiler_bug": "internal_compiler_error compiler_crash",
    "intermittent": "",
    "host_memory": "oom_host",
    "environment": "kernel_artifact_missing nki_version disk_full toolchain_missing "
    "toolchain_mixed cache_poisoned cache_io busy driver_missing driver_old neff_version placement "
    "version hardware hardware_reset timeout transient collectives network",
    "interrupted": "interrupted",
    "unknown": "compile_failed caller runtime unknown stopped bad_output",
}
"""Kind → the classes of it. A class says what failed, a kind who can do something about it."""

_KIND_OF = {cls: kind for kind, classes in KINDS.items() for cls in classes.split()}
_HARMLESS = ("ok", "cache_hit", "info")
_RACES_GONE = (2, 26)  # neuronx-cc of SDK 2.31

_CODE = re.compile(r"\[?\bNCC_([A-Z]{3,5}\d{3})\]")
_LEGACY = re.compile(
    r"(?m)(?:^[ \t]*|Z |: |ERROR )\[(?!SHA|RFC|UTF|AES|ISO|MD)([A-Z]{3,5}\d{3})\][ \t]"
)
_CALLED = re.compile(r"\[(INTERNAL_)?ERROR\] $")
_FATAL = re.compile(r"\[F(1\d\d)\]")
_STATUS = re.compile(r"\b(NRT_[A-Z_]{4,})\b|\bstatus=(\d+) +message=")
_WARNING = re.compile(r"\[WARNING\]|\bWARNING\b|^W\d{4} ")
_TALK = re.compile(r"\b(WARNING|INFO|DEBUG)\b")
_POISONED = re.compile(r"Got a cached failed neff at (\S+?)/model\.neff")
_SIGNALS = {9: "oom_host", 6: "compiler_crash", 11: "compiler_crash"} | dict.fromkeys(
    (1, 2, 15), "interrupted"
)
_NAMES = {1: "SIGHUP", 2: "SIGINT", 6: "SIGABRT", 9: "SIGKILL", 11: "SIGSEGV", 15: "SIGTERM"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """What failed, where, and who can do something about it.

    Attributes:
        code: "NCC_EOOM002", "F137", "NRT_RESOURCE"; "" where nothing gives one.
        cls: class in the table of `hardware.codes`.
        kind: one of `KINDS`.
        line: of the log, that decided.
        retry: as in `hardware.codes.RETRIES`.
        retries: how often the same may be tried again.
        fallbacks: documented ways around, as in the table.
        deterministic: sure to come again with the same input, so worth remembering.
        program, submodel, index, batch, bucket: the graph, as far as it is known; `index` counts
            the submodel's buckets from 0.
        versions: package → version of the toolchain.
        figures: numbers of the message, in bytes and instructions; see `figures`.
        entries: directories of the vendor's cache that hold an earlier failure.
        kernels: kernels' files that the log names.
    """

    code: str = ""
    cls: str
    kind: str
    meaning: str
    remedy: str
    line: str = ""
    retry: str = "no"
    retries: int = 0
    fallbacks: tuple[str, ...] = ()
    deterministic: bool = False
    program: str = ""
    submodel: str = ""
    index: int | None = None
    batch: int | None = None
    bucket: Any = None
    target: str = ""
    versions: Mapping[str, str] = field(default_factory=dict)
    figures: Mapping[str, int] = field(default_factory=dict)
    entries: tuple[str, ...] = ()
    kernels: tuple[str, ...] = ()

    @property
    def graph(self) -> str:
        """The graph in a few words; "" when it is not known."""
        if not self.submodel:
            return ""
        parts = [f"{self.program}/{self.submodel}" if self.program else self.submodel]
        if self.batch is not None:
            parts.append(f"b{self.batch}")
        if self.bucket not in (None, 0):
            parts.append(str(self.bucket))
        elif self.index is not None:
            parts.append(f"bucket no. {self.index}")
        return " ".join(parts)

    @property
    def reason(self) -> str:
        """Meaning, figures and code in one line."""
        said = in_words(self.figures)
        text = f"{self.meaning} ({said})" if said else self.meaning
        return f"{text} [{self.code}]" if self.code else text

    def same_as(self, other: Failure) -> bool:
        """Whether it is one fault: the same code, or without codes the same class."""
        return self.code == other.code if self.code or other.code else self.cls == other.cls


def classify(
    lines: Iterable[str],
    *,
    exit_code: int | None = None,
    killed_for_memory: bool = False,
    over: str = "",
    interrupted: bool = False,
    toolchain: Mapping[str, str] | None = None,
    graph: Mapping[str, Any] | None = None,
    target: str = "",
) -> Failure:
    """What the output of a failed compile means.

    Args:
        lines: everything that this attempt printed: the compiler's log, the exception's text.
        exit_code: of the process that was watched, negative for a signal as in `subprocess`.
        killed_for_memory: the kernel has counted an out-of-memory kill meanwhile.
        over: the limit of ours that it was stopped for: "time", "silence" or "memory".
        interrupted: by the user; whatever a compiler then says is no reason.
        toolchain: package → version.
        graph: submodel, index, batch, bucket and program, where the caller knows them.
        target: "trn2", for the report.
    """
    log, versions = Log(lines), dict(toolchain or {})
    text = log.lines
    found, at = _cause(log, exit_code, killed_for_memory, over, interrupted, versions)
    line = text[at].strip()[:2000] if at is not None else ""
    numbers: dict[str, int] = {}
    if at is not None and found.cls in ("oom_device", "instruction_limit"):
        numbers = figures(text[at : at + 8])
    elif found.cls in ("oom_host", "compiler_crash"):
        numbers = compiler_memory(text)
    poisoned = found.cls == "cache_poisoned"
    entries = [match[1] for match, _, _ in log.find(_POISONED)] if poisoned else ()
    return replace(
        found,
        line=line or next((t.strip()[:2000] for t in reversed(text) if t.strip()), ""),
        target=target,
        versions=versions,
        figures=numbers,
        entries=tuple(dict.fromkeys(entries)),
        kernels=kernel_files(text),
        **place(text, at, graph),
    )


def bad_output(
    problem: str,
    *,
    toolchain: Mapping[str, str] | None = None,
    graph: Mapping[str, Any] | None = None,
    target: str = "",
) -> Failure:
    """A compiler that reports success and has left nothing, or half a file.

    One more try is worth it: a shared file system may have lost it, and a full disk says so.

    Args:
        problem: "graph.neff is missing"; the others as `classify` takes them.
    """
    found = Failure(
        cls="bad_output",
        kind="unknown",
        meaning=f"the compiler reports success, but {problem}",
        remedy="compile again with the work directory and the vendor's cache on a local disk",
        line=problem,
        retry="yes",
        retries=1,
        target=target,
        versions=dict(toolchain or {}),
    )
    return replace(found, **place([], None, graph))


def _cause(
    log: Log,
    exit_code: int | None,
    killed_for_memory: bool,
    over: str,
    interrupted: bool,
    versions: Mapping[str, str],
) -> tuple[Failure, int | None]:
    """The failure without its place, and the line that decided."""
    if interrupted:
        return _plain("interrupted", "it was interrupted", "the same command goes on from there")
    if over:
        return _over(over)
    known, spoken = _coded(log), _spoken(log)
    if spoken and _outweighs(spoken[0], known):
        return _of_line(spoken[0], versions), spoken[1]
    if (stale := _stale(log, known)) is not None:
        return stale
    if known:
        return _of_code(known[0], versions), known[1]
    if fatal := log.first(_FATAL):
        return _of_code(compiler_code(f"F{fatal[0][1]}"), versions), fatal[1]
    if killed_for_memory:
        return _plain(
            "oom_host",
            "a process was killed because the host's memory ran out, as the kernel counts",
            compiler_code("F137").remedy,
            retry="yes",
            fallbacks=compiler_code("F137").fallbacks,
        )
    if spoken and spoken[0].cls != "compile_failed":
        return _of_line(spoken[0], versions), spoken[1]
    if (status := _runtime(log)) is not None:
        return status
    if (ended := _of_signal(exit_code, versions)) is not None:
        return ended
    if spoken:
        return _of_line(spoken[0], versions), spoken[1]
    return _plain("unknown", "it has failed and gives no reason that is known", "read the log")


def _coded(log: Log) -> tuple[CompilerCode, int] | None:
    """The first code that is not only a warning."""
    for pattern, quiet in ((_CODE, _WARNING), (_LEGACY, _TALK)):
        for match, at, before in log.find(pattern):
            if not quiet.search(before):
                called = _CALLED.search(before)
                internal = None if called is None else bool(called[1])
                code = f"NCC_{match[1]}" if pattern is _CODE else match[1]
                return compiler_code(code, internal=internal), at
    return None


def _spoken(log: Log) -> tuple[LogLine, int] | None:
    """The most telling of the lines that are known."""
    for sign in log_lines():
        if sign.cls not in _HARMLESS and (found := log.first(sign.pattern)):
            return sign, found[1]
    return None


def _outweighs(sign: LogLine, known: tuple[CompilerCode, int] | None) -> bool:
    """Whether the host is at fault, and a code of the compiler's own only how it noticed."""
    if sign.cls not in ("disk_full", "toolchain_missing", "toolchain_mixed"):
        return False
    if known is None:
        return True
    # a library that is looked for in several places is reported missing in some of them
    fatal = not sign.pattern.search("cannot open shared object file")
    return fatal and not known[0].code.startswith("NCC_E")


def _stale(log: Log, known: tuple[CompilerCode, int] | None) -> tuple[Failure, int] | None:
    """A failure that the vendor's cache remembers; what it then prints is of that time."""
    sign = next(sign for sign in log_lines() if sign.cls == "cache_poisoned")
    told = log.first(sign.pattern)
    if told is None:
        return None
    at = told[1]
    if known and (known[1] < at or _fresh(log.lines[at : known[1] + 1])):
        return None
    found = _of_line(sign, {})
    if known:
        found = replace(found, meaning=f"{found.meaning}; it was {known[0].code} then")
    return found, at


def _fresh(text: Sequence[str]) -> bool:
    """Whether a compiler ran in between."""
    return any("Failed compilation with [" in line or "Call compiler" in line for line in text)


def _of_code(known: CompilerCode, versions: Mapping[str, str]) -> Failure:
    kind = known.kind or _KIND_OF[known.cls]
    internal = kind == "compiler_bug"
    coded = not known.code.startswith("F1")
    retries = 2 if known.retry == "same" else 0
    if internal and not retries and _races(versions) and not (known.listed and coded):
        kind, retries = "intermittent", 1
    elif retries:
        kind = "intermittent"
    return Failure(
        code=known.code,
        cls=known.cls,
        kind=kind,
        meaning=known.meaning,
        remedy=known.remedy,
        retry="same" if kind == "intermittent" else known.retry,
        retries=retries,
        fallbacks=known.fallbacks,
        deterministic=coded and kind in ("config", "compiler_bug"),
    )


def _of_line(sign: LogLine | RuntimeStatus, versions: Mapping[str, str]) -> Failure:
    kind = _KIND_OF[sign.cls]
    intermittent = kind == "compiler_bug" and _races(versions)
    return Failure(
        code=sign.name if isinstance(sign, RuntimeStatus) else "",
        cls=sign.cls,
        kind="intermittent" if intermittent else kind,
        meaning=sign.meaning,
        remedy=sign.remedy,
        retry="same" if intermittent else sign.retry,
        retries=1 if intermittent or sign.cls == "cache_io" else 0,
        fallbacks=getattr(sign, "fallbacks", ()),
        deterministic=sign.cls in ("instruction_limit", "oom_device") and kind == "config",
    )


def _runtime(log: Log) -> tuple[Failure, int] | None:
    for match, at, _ in log.find(_STATUS):
        status = runtime_status(match[1] or int(match[2]))
        if status is not None and status.cls != "ok":
            return replace(_of_line(status, {}), deterministic=False), at
    return None


def _of_signal(
    exit_code: int | None, versions: Mapping[str, str]
) -> tuple[Failure, int | None] | None:
    if exit_code is None or 0 <= exit_code <= 128:
        return None
    number = -exit_code if exit_code < 0 else exit_code - 128
    cls = _SIGNALS.get(number)
    name = _NAMES.get(number, f"signal {number}")
    if cls == "oom_host":
        known = compiler_code("F137")
        return _plain(
            cls,
            f"it was killed ({name}), nearly always because the host's memory ran out",
            known.remedy,
            retry="yes",
            fallbacks=known.fallbacks,
        )
    if cls == "interrupted":
        return _plain(cls, f"it was ended by {name}", "the same command goes on from there")
    if cls == "compiler_crash":
        return replace(_of_code(compiler_code(f"F{128 + number}"), versions), code=""), None
    return None


def _over(which: str) -> tuple[Failure, None]:
    if which == "memory":
        return _plain(
            "oom_host",
            "it was stopped at the limit that is set for memory",
            "raise that limit, lower --jobs or the largest bucket, or -O1",
            retry="yes",
            fallbacks=compiler_code("F137").fallbacks,
        )
    what = "it showed no sign of life" if which == "silence" else "it took too long"
    return _plain(
        "stopped",
        f"{what} and was stopped",
        "raise that limit if the graph is large; else try -O1 or another --toolchain",
        retry="once_changed",
        fallbacks=("-O1",),
    )


def _plain(
    cls: str, meaning: str, remedy: str, *, retry: str = "no", fallbacks: tuple[str, ...] = ()
) -> tuple[Failure, None]:
    return (
        Failure(
            cls=cls,
            kind=_KIND_OF[cls],
            meaning=meaning,
            remedy=remedy,
            retry=retry,
            fallbacks=fallbacks,
        ),
        None,
    )


def _races(versions: Mapping[str, str]) -> bool:
    """Whether this compiler is one of those with data races; not where its version is unknown."""
    match = re.match(r"(\d+)\.(\d+)", versions.get("neuronx-cc", ""))
    return match is not None and (int(match[1]), int(match[2])) < _RACES_GONE
