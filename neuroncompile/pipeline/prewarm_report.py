"""What pre-warming tells: a line a program as it goes, a table at the end, and JUnit XML for CI.

The JUnit document is in the intersection of the two schemas that readers use, Apache Ant's
(github.com/windyroad/JUnit-Schema) and Jenkins' (jenkinsci/xunit-plugin, junit-10.xsd): a suite
has properties, cases, system-out and system-err in this order, a case at most one child.
"""

from __future__ import annotations

import errno
import json
import os
import platform
import re
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from neuroncompile.errors import CacheMissError, CompileError, ConfigError, NeuronCompileError
from neuroncompile.output import Output, human_bytes, human_seconds
from neuroncompile.pipeline.prewarm_shard import Shard

__all__ = ["Record", "Row", "check_junit", "exit_code", "show", "write_junit"]

SCHEMA = 1
STATUSES = ("built", "pulled", "warm", "cold", "failed", "skipped")
LOG_LINES = 40  # of a failed compiler's log

_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_ESCAPES = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")


@dataclass(slots=True)
class Row:
    """What became of one program.

    Attributes:
        recipe: the recipe's name.
        cell: the point of its matrix, dotted name → value; empty without one.
        name: `recipe[a=1,b=2]`; `reference` is what `build` takes for it.
        status: one of `STATUSES`.
        key: SHA-256 of the spec, or None where it was not planned.
        source: "store", "compiler" or a tier's URL; None where it is nowhere.
        seconds: wall time.
        size: bytes of the program's files, or None where they are not here.
        error: why it failed.
        reason: why it was skipped.
        when: Unix time at its end.
    """

    recipe: str
    cell: Mapping[str, Any]
    name: str
    reference: str
    status: str = "skipped"
    key: str | None = None
    source: str | None = None
    seconds: float = 0.0
    size: int | None = None
    error: NeuronCompileError | None = None
    reason: str | None = None
    when: float = field(default_factory=time.time)

    @property
    def exit_code(self) -> int:
        """What `build`, or `build --check`, would have ended with."""
        if self.error is not None:
            return self.error.exit_code
        return CacheMissError.exit_code if self.status == "cold" else 0

    def as_json(self) -> dict[str, Any]:
        """One line of a record."""
        return {
            "schema": SCHEMA,
            "recipe": self.recipe,
            "cell": dict(self.cell),
            "name": self.name,
            "key": self.key,
            "status": self.status,
            "source": self.source,
            "seconds": round(self.seconds, 3),
            "bytes": self.size,
            "exit_code": self.exit_code,
            "error": None if self.error is None else self.error.as_json(),
            "reason": self.reason,
            "when": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(self.when)),
        }


def exit_code(rows: Sequence[Row]) -> int:
    """0 when all is well, 3 when something is cold, 6 when something failed.

    When everything that was tried failed, and in the same way, its own code says more than 6.
    """
    tried = [row for row in rows if row.status != "skipped"]
    failed = [row for row in tried if row.status == "failed"]
    codes = {row.exit_code for row in failed}
    if failed:
        return codes.pop() if len(failed) == len(tried) and len(codes) == 1 else 6
    return max((row.exit_code for row in tried), default=0)


class Record:
    """A JSON Lines file that grows by a line a program, each in one write.

    Raises:
        ConfigError: it cannot be written.
    """

    def __init__(self, path: Path, output: Output) -> None:
        self._path, self._output = path, output
        try:
            self._append(b"")
            torn = path.is_file() and _last_byte(path) not in (b"", b"\n")
        except OSError as error:
            raise _unwritable("record", path, error) from None
        self._before = b"\n" if torn else b""  # by a host that died while it wrote

    def add(self, row: Row) -> None:
        """Append a line; a full disk is a warning, as the programs matter more."""
        line = json.dumps(row.as_json(), ensure_ascii=False, default=str)
        try:
            self._append(self._before + line.encode() + b"\n")
            self._before = b""
        except OSError as error:
            self._output.warn(f"--record {self._path} cannot be written: {error.strerror}")

    def _append(self, line: bytes) -> None:
        handle = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            if line:
                os.write(handle, line)
        finally:
            os.close(handle)


def _last_byte(path: Path) -> bytes:
    with open(path, "rb") as file:
        file.seek(max(0, file.seek(0, os.SEEK_END) - 1))
        return file.read(1)


def show(rows: Sequence[Row], shard: Shard | None, seconds: float, output: Output) -> None:
    """The table, what failed and why, and one line with the counts."""
    shown = [row for row in rows if row.status != "skipped"]
    if shown:
        output.table(
            ("STATUS", "TIME", "SIZE", "KEY", "PROGRAM"),
            [
                (
                    row.status,
                    human_seconds(row.seconds),
                    "-" if row.size is None else human_bytes(row.size),
                    row.key[:12] if row.key else "-",
                    row.name,
                )
                for row in shown
            ],
        )
        output.line()
    for row in shown:
        if row.error is not None:
            output.line(f"{row.name} failed with exit code {row.exit_code}: {row.error}")
            if row.error.hint:
                output.line(f"  {row.error.hint}")
    counts = Counter(row.status if row.reason is None else row.reason for row in rows)
    told = [f"{counts[status]} {status}" for status in STATUSES if counts[status]]
    told += [f"{count} {reason}" for reason, count in counts.items() if reason not in STATUSES]
    part = f"shard {shard}: " if shard else ""
    output.line(f"{part}{', '.join(told) or 'nothing to do'} in {human_seconds(seconds)}")


def check_junit(path: Path) -> None:
    """Refuse, before hours of work, a file that could not be written after them.

    Raises:
        ConfigError: its directory is not there or not writable, or it is a directory.
    """
    why = None
    if not path.parent.is_dir():
        why = errno.ENOENT
    elif path.is_dir():
        why = errno.EISDIR
    elif not os.access(path.parent, os.W_OK):
        why = errno.EACCES
    if why is not None:
        raise _unwritable("junit", path, OSError(why, os.strerror(why)))


def write_junit(
    path: Path, rows: Sequence[Row], shard: Shard | None, began: float, seconds: float
) -> None:
    """One suite with a case a program; cold and refused by the compiler are failures, all else
    that went wrong an error.

    Raises:
        OSError: it cannot be written.
    """
    from xml.etree import ElementTree

    kinds = Counter(_kind(row) for row in rows)
    root = ElementTree.Element("testsuites")
    suite = ElementTree.SubElement(
        root,
        "testsuite",
        {
            "id": "0",
            "package": "neuroncompile",
            "name": "neuroncompile prewarm",
            "timestamp": time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(began)),
            "hostname": platform.node() or "localhost",
            "tests": str(len(rows)),
            "failures": str(kinds["failure"]),
            "errors": str(kinds["error"]),
            "skipped": str(kinds["skipped"]),
            "time": f"{seconds:.3f}",
        },
    )
    properties = ElementTree.SubElement(suite, "properties")
    if shard is not None:
        ElementTree.SubElement(properties, "property", {"name": "shard", "value": str(shard)})
    for row in rows:
        case = ElementTree.SubElement(
            suite,
            "testcase",
            {
                "classname": _clean(row.recipe),
                "name": _clean(row.name),
                "time": f"{row.seconds:.3f}",
            },
        )
        if kind := _kind(row):
            child = ElementTree.SubElement(case, kind, _attributes(row, kind))
            child.text = _clean(_text(row)) or None
    for name in ("system-out", "system-err"):
        ElementTree.SubElement(suite, name)
    ElementTree.indent(root)
    text = ElementTree.tostring(root, encoding="utf-8", xml_declaration=True)
    part = path.with_name(f".{path.name}.{os.getpid()}")
    part.write_bytes(text + b"\n")
    os.replace(part, path)


def _kind(row: Row) -> str:
    if row.status == "skipped":
        return "skipped"
    if row.status == "cold" or isinstance(row.error, CompileError):
        return "failure"
    return "error" if row.error is not None else ""


def _attributes(row: Row, kind: str) -> dict[str, str]:
    if row.error is not None:
        return {"message": _clean(str(row.error)), "type": type(row.error).__name__}
    if kind == "failure":
        message = "neither in the store nor in a tier"
        return {"message": message, "type": CacheMissError.__name__}
    return {"message": _clean(row.reason or "")}


def _text(row: Row) -> str:
    """Hint, key, and the end of the compiler's log."""
    error = row.error
    if error is None:
        return f"key {row.key}" if row.status == "cold" else ""
    lines = [error.hint or ""]
    if row.key:
        lines.append(f"key {row.key}")
    return "\n".join([*filter(None, lines), *_log_tail(error)])


def _log_tail(error: NeuronCompileError) -> list[str]:
    try:
        text = Path(error.details["log"]).read_text(encoding="utf-8", errors="replace")
        return text.splitlines()[-LOG_LINES:]
    except (KeyError, TypeError, OSError):
        return [str(line) for line in error.details.get("last_lines", ())]


def _clean(text: str) -> str:
    """Without colours, and without what XML 1.0 cannot hold."""
    return _NOT_XML.sub("\N{REPLACEMENT CHARACTER}", _ESCAPES.sub("", text))


def _unwritable(field: str, path: Path, error: OSError) -> ConfigError:
    return ConfigError(
        f"--{field} {path} cannot be written: {error.strerror}",
        field=field,
        value=str(path),
        legal="a file in a directory that is there and writable",
        hint="name another file, or make its directory",
    )
