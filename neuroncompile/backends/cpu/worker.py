"""A compiler process: one import of torch, many graphs.

`python -m neuroncompile.backends.cpu.worker` reads one JSON object a line from stdin,
`{"key", "spec", "out"}`, compiles it, and answers with a line on the stdout it was started
with: `{"key", "files": [titles]}` or `{"key", "error"}`. Everything libraries print goes to
stderr, which the parent keeps as the log.
"""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import signal
import sys
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import Any

__all__ = ["OBJECT", "SIGNATURE", "main"]

OBJECT, SIGNATURE = "graph.so", "graph.json"

ENTRY_POINT = "AOTInductorModelContainerCreateWithDevice"


def main() -> None:
    """Serve until stdin ends."""
    _die_with_parent()
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    for line in sys.stdin:
        order = json.loads(line)
        answer: dict[str, object]
        try:
            answer = {"files": _compile(order["key"], order["spec"], Path(order["out"]))}
        except Exception as error:
            traceback.print_exc()
            text = str(error).strip().splitlines()
            answer = {"error": f"{type(error).__name__}: {text[0] if text else 'no message'}"}
        answers.write(json.dumps({"key": order["key"], **answer}) + "\n")
        answers.flush()


def _compile(key: str, spec: Mapping[str, Any], out: Path) -> list[str]:
    from neuroncompile.backends.cpu.lowering import lower, signature
    from neuroncompile.backends.cpu.workdir import fixed_directory

    out.mkdir(parents=True, exist_ok=True)
    with fixed_directory(key) as directory:
        library = lower(spec, directory)
        _verify(library)
        shutil.copyfile(library, out / OBJECT)
    text = json.dumps(signature(spec), sort_keys=True, indent=1) + "\n"
    (out / SIGNATURE).write_text(text, encoding="utf-8")
    return [OBJECT, SIGNATURE]


def _verify(library: Path) -> None:
    """Exit status is not trusted: the object must load here and have its entry point."""
    loaded = ctypes.CDLL(str(library))
    if not hasattr(loaded, ENTRY_POINT):
        raise RuntimeError(f"{library.name} was linked without {ENTRY_POINT}")


def _die_with_parent() -> None:
    """A build that is killed takes its compilers along: parent, then us, then our group."""

    def stop(_number: int, _frame: object) -> None:
        os.killpg(0, signal.SIGKILL)

    parent = os.getppid()
    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides
    set_parent_death_signal = 1
    ctypes.CDLL(None).prctl(set_parent_death_signal, signal.SIGTERM)
    if os.getppid() != parent:
        os._exit(1)


if __name__ == "__main__":
    main()
