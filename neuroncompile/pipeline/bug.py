"""A report file for an error nobody expected.

The terminal gets one line and the file's path; the file gets the traceback and the versions,
without argv, environment values or anything else that may hold a token or a name.
"""

from __future__ import annotations

import os
import platform
import sys
import tempfile
import time
import traceback
from pathlib import Path

from neuroncompile import __version__
from neuroncompile.errors import NeuronCompileError
from neuroncompile.pipeline.redact import Redactor

__all__ = ["report"]


def report(error: Exception, command: str) -> NeuronCompileError:
    """Write the report and return the error to show for it."""
    text = "\n".join(
        [
            f"neuroncompile {__version__}, command {command or '-'}",
            f"python {platform.python_version()}, {platform.platform()}",
            time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            "",
            "".join(traceback.format_exception(error)),
        ]
    )
    redactor = Redactor.here()
    path = _write(redactor.text(text))
    summary = redactor.text(f"{type(error).__name__}: {error}".split("\n", 1)[0])
    return NeuronCompileError(
        f"this is a bug in neuroncompile: {summary}",
        hint=f"please report it with {path}" if path else "run again with a writable TMPDIR",
        details={"report": str(path) if path else None},
    )


def _write(text: str) -> Path | None:
    try:
        handle, name = tempfile.mkstemp(prefix="neuroncompile-report-", suffix=".txt")
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
    except OSError:
        sys.stderr.write(text)  # nowhere to keep it: better on the terminal than lost
        return None
    return Path(name)
