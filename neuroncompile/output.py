"""The only place that prints.

Three modes, chosen once: *human* (results on stdout, everything about them on stderr), *json*
(exactly one document on stdout, errors included) and *quiet* (results only). Colour and moving
progress appear only on a terminal, and never when `NO_COLOR` is set or `TERM` is `dumb`.
"""

from __future__ import annotations

import json
import math
import os
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any, TextIO

from neuroncompile.errors import NeuronCompileError

__all__ = ["Output", "age", "human_bytes", "human_seconds"]

SCHEMA = 1


class Output:
    """Where a command's words go.

    Args:
        json_mode: one JSON document on stdout instead of text.
        quiet: only results and errors.
        verbosity: 0, 1 (`-v`) or 2 (`-vv`).

    Attributes:
        closed: whoever read stdout has gone (`| head`); what is written there is dropped.
    """

    def __init__(self, *, json_mode: bool = False, quiet: bool = False, verbosity: int = 0) -> None:
        self.json_mode, self.quiet, self.verbosity = json_mode, quiet, verbosity
        self.command = ""
        self.warnings: list[str] = []
        self.closed = False
        self._line_open = False
        self._emitted = False

    # ------------------------------------------------------------- results, on stdout

    def line(self, text: str = "") -> None:
        """A line of the result; nothing in json mode."""
        if not self.json_mode:
            self._write(sys.stdout, text + "\n")

    def stream(self, text: str) -> None:
        """A piece of streamed result, shown at once."""
        if not self.json_mode and text:
            self._write(sys.stdout, text)

    def table(self, headers: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        """Aligned columns, two spaces apart; bold headers on a terminal."""
        if self.json_mode:
            return
        widths = [max(len(r[i]) for r in (headers, *rows)) for i in range(len(headers))]
        for number, row in enumerate((headers, *rows)):
            text = "  ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)).rstrip()
            self.line(self.style(text, "1", sys.stdout) if number == 0 else text)

    def result(self, result: Any, *, exit_code: int = 0) -> None:
        """The one JSON document of a command that came to its end."""
        self._document(result=result, exit_code=exit_code, error=None)

    # ------------------------------------------------- about the result, on stderr

    def note(self, text: str, *, level: int = 0) -> None:
        """What happens and why; `level` 1 needs `-v`, 2 needs `-vv`."""
        if not self.quiet and self.verbosity >= level:
            self._write(sys.stderr, text + "\n")

    def warn(self, text: str) -> None:
        """Kept for the JSON document, and said once."""
        if text in self.warnings:
            return
        self.warnings.append(text)
        if not self.quiet:
            self._write(sys.stderr, f"{self.style('warning:', '33', sys.stderr)} {text}\n")

    def error(self, error: NeuronCompileError, *, exit_code: int | None = None) -> None:
        """One line and one hint, or the JSON document."""
        code = error.exit_code if exit_code is None else exit_code
        if self.json_mode:
            self._document(result=None, exit_code=code, error=error.as_json())
            return
        self._write(sys.stderr, f"{self.style('error:', '1;31', sys.stderr)} {error}\n")
        if error.hint:
            self._write(sys.stderr, f"{self.style('hint:', '36', sys.stderr)} {error.hint}\n")

    def progress(self, text: str) -> None:
        """Replace the moving line on a terminal; off a terminal nothing moves."""
        if self.moving:
            self._write(sys.stderr, f"\r\x1b[2K{text[: _columns()]}", keep_line=True)
            self._line_open = True

    @property
    def moving(self) -> bool:
        """Whether a moving progress line can be shown."""
        return not self.quiet and sys.stderr.isatty() and os.environ.get("TERM") != "dumb"

    def style(self, text: str, code: str, stream: TextIO) -> str:
        """`text` in the SGR style `code` where colour belongs."""
        plain = os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb"
        return text if plain or not stream.isatty() else f"\x1b[{code}m{text}\x1b[0m"

    # ---------------------------------------------------------------------- inside

    def _document(self, *, result: Any, exit_code: int, error: Mapping[str, Any] | None) -> None:
        if not self.json_mode or self._emitted:
            return
        self._emitted = True
        document = {
            "schema": SCHEMA,
            "command": self.command,
            "exit_code": exit_code,
            "result": result,
            "warnings": self.warnings,
            "error": error,
        }
        indent = 2 if sys.stdout.isatty() else None
        text = json.dumps(
            _json(document), indent=indent, ensure_ascii=False, allow_nan=False, default=str
        )
        self._write(sys.stdout, text + "\n")

    def _write(self, stream: TextIO, text: str, *, keep_line: bool = False) -> None:
        if self._line_open and not keep_line:
            sys.stderr.write("\r\x1b[2K")
            self._line_open = False
        try:
            try:
                stream.write(text)
            except UnicodeEncodeError:  # a terminal that is not UTF-8 must not end the run
                coding = stream.encoding or "ascii"
                stream.write(text.encode(coding, "replace").decode(coding))
            stream.flush()
        except BrokenPipeError:
            # The work goes on and keeps its exit code; the rest is written to nowhere.
            self.closed = self.closed or stream is sys.stdout
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def human_bytes(size: float) -> str:
    """1536 -> '1.5 KB', decimal units as storage vendors and AWS use."""
    for unit in ("B", "KB", "MB", "GB"):
        if size < 1000:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} TB"


def human_seconds(seconds: float) -> str:
    """0.42 -> '0.4 s', 75 -> '1m15s', 3700 -> '1h01m'."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes}m{rest:02d}s"
    return f"{minutes // 60}h{minutes % 60:02d}m"


def age(timestamp: float) -> str:
    """How long ago a Unix time was, for listings."""
    seconds = max(0.0, time.time() - timestamp)
    for size, unit in ((86400, "d"), (3600, "h"), (60, "m")):
        if seconds >= size:
            return f"{seconds / size:.0f}{unit} ago"
    return "just now"


def _json(value: Any) -> Any:
    """Infinities and NaN as text: JSON has no such numbers."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, Mapping):
        return {str(key): _json(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_json(item) for item in value]
    return value


def _columns() -> int:
    try:
        return os.get_terminal_size(sys.stderr.fileno()).columns - 1
    except OSError:
        return 79
