"""All that a compiler's maker needs of a failed compile, in one file that can be sent away.

    bundle.json        what failed, versions, every file's size and digest, what was left out
    spec.json          the whole input
    command.txt        the compiler's command lines
    compile.log        the end of the log
    logs/…             what each graph's compiler wrote
    graphs/<submodel>/_tp0_bk<n>/…   HLO, command and log of each graph in the work tree
    kernels/<16 hex digits>/<file>   kernels that the log or an HLO names

A plain tar (POSIX ustar) under gzip, with no owner, time or path of the host: the same failure
gives the same bytes. Texts are redacted; in binary files each byte of a secret becomes an x, so
they can still be read. No weights, no compiled program, no link and no compressed file is in it.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import re
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

from neuroncompile import __version__
from neuroncompile.backends.nxdi.failures import Failure
from neuroncompile.backends.nxdi.places import kernel_files
from neuroncompile.errors import StoreError
from neuroncompile.pipeline.redact import Redactor
from neuroncompile.store.tar import end, header, padding

__all__ = ["Bundle", "write_bundle"]

LOG_LINES = 2000
LARGEST = 64 << 20  # bytes of one file
LARGEST_IN_ALL = 256 << 20
LONGEST_NAME = 100  # of a ustar header

_PACKED = (
    b"\x1f\x8b",
    b"PK\x03\x04",
    b"\x28\xb5\x2f\xfd",
    b"\xfd7zXZ",
    b"BZh",
    b"\x04\x22\x4d\x18",
)
_BINARY = (".hlo", ".pb", ".klir")
_TEXT = (".txt", ".json", ".log", ".mlir", ".stablehlo")
_KERNEL_PLACE = re.compile(r"/([0-9a-f]{16})/([\w.+-]+)$")


class Bundle(NamedTuple):
    """A bundle that was written.

    Attributes:
        members: names, in the file's order.
        left_out: file, as it may be shown, → why.
    """

    path: Path
    size: int
    members: tuple[str, ...]
    left_out: Mapping[str, str]


def write_bundle(
    path: Path,
    failure: Failure,
    *,
    spec: Mapping[str, Any],
    work: Path | None = None,
    log: Path | None = None,
    logs: Path | None = None,
    commands: Sequence[str] = (),
    redactor: Redactor | None = None,
) -> Bundle:
    """Write the bundle of a failed compile; it is readable by its owner alone.

    Args:
        path: of the new file, `….tar.gz`; an old one is replaced.
        spec: of the program.
        work: the work tree of graphs.
        log: everything that the framework and the compilers printed.
        logs: directory with a log for each graph, where they are not in the work tree.
        commands: command lines of the compiler; those that the log shows are added.
        redactor: what to take out; None for what this host and environment have.

    Raises:
        StoreError: it cannot be written.
    """
    collected = _Collected(redactor or Redactor.here())
    lines = _tail(log)
    collected.text("spec.json", _json(spec))
    shown = [*commands, *_commands(lines)]
    if shown:
        collected.text("command.txt", "\n".join(dict.fromkeys(shown)) + "\n")
    if lines:
        collected.text("compile.log", "\n".join(lines) + "\n")
    collected.kernels.update(dict.fromkeys([*failure.kernels, *kernel_files(lines)]))
    for place, root in (("graphs", work), ("logs", logs)):
        if root is not None:
            collected.tree(place, root)
    collected.take_kernels()
    collected.text("bundle.json", _json(_head(failure, collected)))
    size = _write(path, collected.files)
    return Bundle(path, size, tuple(sorted(collected.files)), dict(collected.left_out))


class _Collected:
    """The members so far, redacted."""

    def __init__(self, redactor: Redactor) -> None:
        self.redactor = redactor
        self.files: dict[str, bytes] = {}
        self.left_out: dict[str, str] = {}
        self.kernels: dict[str, None] = {}
        self._taken: set[str] = set()

    def text(self, name: str, text: str) -> None:
        self.files[name] = self.redactor.text(text).encode()

    def tree(self, place: str, root: Path) -> None:
        """HLO files, commands and logs below a directory, and the kernels that they name."""
        for found in sorted(_regular_files(root)):
            if found.suffix in (*_BINARY, *_TEXT):
                name = f"{place}/{found.relative_to(root).as_posix()}"
                self._file(name, found, binary=found.suffix in _BINARY)

    def take_kernels(self) -> None:
        for named in self.kernels:
            found = next((name for name in (named, named[:-1]) if _is_plain(Path(name))), None)
            place = _KERNEL_PLACE.search(found or named)
            if place is None:  # a log could name any file of this host
                self._leave(named, "not in a kernel's directory")
            elif found is None:
                self._leave(named, "not on this host")
            elif found not in self._taken:
                self._taken.add(found)
                self._file(f"kernels/{place[1]}/{place[2]}", Path(found), binary=True)

    def _file(self, name: str, path: Path, *, binary: bool) -> None:
        name = self._name(name)
        try:
            if path.stat().st_size <= LARGEST:
                data = path.read_bytes()
            elif binary:
                return self._leave(name, f"larger than {LARGEST >> 20} MiB")
            else:
                data = "\n".join(_tail(path)).encode()
                self._leave(name, f"only its last {LOG_LINES} lines are in")
        except OSError as error:
            return self._leave(name, error.strerror or type(error).__name__)
        if sum(map(len, self.files.values())) + len(data) > LARGEST_IN_ALL:
            return self._leave(name, f"the bundle would be larger than {LARGEST_IN_ALL >> 20} MiB")
        if data.startswith(_PACKED):
            return self._leave(name, "compressed, so that nobody can see what is in it")
        if binary and b"\0" in data:
            if path.suffix in _BINARY:
                self.kernels.update(dict.fromkeys(kernel_files([data.decode("latin-1")])))
            self.files[name] = self.redactor.data(data)
        else:
            self.files[name] = self.redactor.text(data.decode("utf-8", "replace")).encode()
        return None

    def _name(self, name: str) -> str:
        """A name of plain ASCII that fits a header, goes nowhere else and is told by nobody."""
        parts = PurePosixPath(self.redactor.text(name)).parts
        safe = [re.sub(r"[^A-Za-z0-9._+-]", "-", part).lstrip(".") or "-" for part in parts]
        plain = "/".join(safe)
        if len(plain) > LONGEST_NAME or plain in self.files:
            digest = hashlib.sha256(name.encode("utf-8", "surrogateescape")).hexdigest()[:16]
            plain = f"{safe[0]}/{digest}-{safe[-1][-64:]}"
        return plain

    def _leave(self, name: str, why: str) -> None:
        self.left_out[self.redactor.text(name)] = why


def _head(failure: Failure, collected: _Collected) -> dict[str, Any]:
    return {
        "schema": 1,
        "neuroncompile": __version__,
        "failure": {
            "code": failure.code or None,
            "class": failure.cls,
            "kind": failure.kind,
            "meaning": failure.meaning,
            "line": failure.line,
            "graph": failure.graph or None,
            "figures": dict(failure.figures),
        },
        "target": failure.target or None,
        "versions": dict(failure.versions),
        "files": [
            {"name": name, "size": len(data), "sha256": hashlib.sha256(data).hexdigest()}
            for name, data in sorted(collected.files.items())
        ],
        "left_out": dict(sorted(collected.left_out.items())),
    }


def _json(value: Mapping[str, Any]) -> str:
    return json.dumps(value, indent=1, sort_keys=True, ensure_ascii=True) + "\n"


def _regular_files(work: Path) -> Iterator[Path]:
    for directory, names, files in os.walk(work, followlinks=False):
        names.sort()
        for file in files:
            path = Path(directory, file)
            if _is_plain(path):
                yield path


def _is_plain(path: Path) -> bool:
    return path.is_file() and not path.is_symlink()


def _tail(log: Path | None) -> list[str]:
    """The last lines of a log, at most 8 MiB of it."""
    if log is None:
        return []
    try:
        with log.open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - (8 << 20)))
            data = file.read()
    except OSError:
        return []
    return data.decode("utf-8", "replace").splitlines()[-LOG_LINES:]


def _commands(lines: Iterable[str]) -> Iterator[str]:
    """Command lines that libneuronxla shows, as a string or as Python's list of one."""
    for line in lines:
        if match := re.search(r"Call compiler with cmd: (.+)", line):
            yield match[1].strip()
        elif match := re.search(r"Failed compilation with (\[.+?\])(?::|$)", line):
            yield match[1]


def _write(path: Path, files: Mapping[str, bytes]) -> int:
    """Write next to the place and rename: there is a whole bundle or none."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=".bundle-")
        temporary = Path(name)
        try:
            with (
                os.fdopen(handle, "wb") as raw,
                gzip.GzipFile("", "wb", 9, raw, mtime=0) as packed,
            ):
                written = 0
                for member, data in sorted(files.items()):
                    block = header(member, len(data)) + data + padding(len(data))
                    written += packed.write(block)
                packed.write(end(written))
            size = temporary.stat().st_size
            temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)
    except OSError as error:
        raise StoreError(
            f"the bundle {path} cannot be written: {error.strerror or error}",
            hint="name a place with room that can be written to",
        ) from None
    return size
