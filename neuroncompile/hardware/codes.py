"""What the vendor's compiler and runtime say when they fail: code, class, meaning, remedy, retry.

The table is `codes.toml` beside this file, read when something has failed and never before. A
compiler's code has two parts, as in NCC_EOOM001: four letters for the check that failed, the
first of them E for what the user can change and I for the compiler's own faults; and a number,
of which 901 is an assertion and 902 any other error inside a pass. Older releases print
some of them without NCC_, or without the first letter.
"""

from __future__ import annotations

import re
import tomllib
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

__all__ = ["RETRIES", "CompilerCode", "LogLine", "RuntimeStatus", "compiler_code", "compiler_codes"]
__all__ += ["log_lines", "runtime_status", "runtime_statuses"]

RETRIES = ("no", "changed", "once_changed", "after_fix", "yes", "same")
"""What may be tried again; the head of `codes.toml` says what each means."""


class CompilerCode(NamedTuple):
    """A code of neuronx-cc.

    Attributes:
        code: "NCC_EOOM001", "F137", "XCG815".
        kind: of failure, where its class does not say it; else "".
        fallbacks: documented ways around: "-O1", "-O2", "-O3", "bucket", "batch".
        fixed: SDK release that repairs a case of it; "" where none is known.
        sure: documented by the vendor, rather than known from published logs.
        listed: in the table; else class, meaning and remedy follow from the letters alone.
    """

    code: str
    cls: str
    meaning: str
    remedy: str
    retry: str
    kind: str = ""
    fallbacks: tuple[str, ...] = ()
    fixed: str = ""
    sure: bool = True
    listed: bool = True


class RuntimeStatus(NamedTuple):
    """A status of the Neuron runtime, NRT_STATUS."""

    name: str
    number: int
    cls: str
    meaning: str
    remedy: str
    retry: str


class LogLine(NamedTuple):
    """A line of a log that tells something by its words; `pattern` is searched in it."""

    pattern: re.Pattern[str]
    cls: str
    meaning: str
    remedy: str
    retry: str
    fallbacks: tuple[str, ...] = ()


def compiler_code(code: str, *, internal: bool | None = None) -> CompilerCode:
    """What a code means; of one that the table lacks, what its letters tell.

    Args:
        code: as printed, with or without NCC_.
        internal: whether the compiler calls it INTERNAL_ERROR or ERROR, which says more than
            the letters of a code that the table lacks; None when it says neither.
    """
    table = compiler_codes()
    bare = code.removeprefix("NCC_")
    for name in (code, bare, f"NCC_{bare}", f"NCC_I{bare}", f"NCC_E{bare}"):
        if name in table:
            return table[name]
    if not (bare[0] != "E" if internal is None else internal):
        return CompilerCode(
            code,
            "rejected",
            "the compiler refuses the graph; its message says why",
            "change what the message names",
            "changed",
            listed=False,
        )
    return CompilerCode(
        code,
        "internal_compiler_error",
        "the compiler has failed in itself",
        "try another -O level or --toolchain; report it with a reduced configuration (--reduce)",
        "once_changed",
        fallbacks=("-O1", "-O2"),
        listed=False,
    )


@cache
def compiler_codes() -> dict[str, CompilerCode]:
    """Code → what it means, in the table's order."""
    return {
        code: CompilerCode(
            code,
            row["class"],
            row["meaning"],
            row["remedy"],
            row["retry"],
            row.get("kind", ""),
            tuple(row.get("fallbacks", ())),
            row.get("fixed", ""),
            row.get("sure", True),
        )
        for row in _table()["compiler"]
        for code in row["codes"]
    }


def runtime_status(status: int | str) -> RuntimeStatus | None:
    """A status by its number or name; None when there is no such."""
    for row in runtime_statuses():
        if status in (row.name, row.number):
            return row
    return None


@cache
def runtime_statuses() -> tuple[RuntimeStatus, ...]:
    """All of them, by number."""
    return tuple(
        RuntimeStatus(
            name, row["number"], row["class"], row["meaning"], row["remedy"], row["retry"]
        )
        for name, row in _table()["runtime"].items()
    )


@cache
def log_lines() -> tuple[LogLine, ...]:
    """What is looked for in a log, the more telling first, those of no failure last."""
    return tuple(
        LogLine(
            re.compile(row["match"], re.MULTILINE),
            row["class"],
            row["meaning"],
            row["remedy"],
            row["retry"],
            tuple(row.get("fallbacks", ())),
        )
        for row in _table()["line"]
    )


@cache
def _table() -> dict[str, Any]:
    with Path(__file__).with_name("codes.toml").open("rb") as file:
        return tomllib.load(file)
