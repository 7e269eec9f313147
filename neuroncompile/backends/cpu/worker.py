"""A compiler process: one import of torch, many graphs.

`python -m neuroncompile.backends.cpu.worker` reads one JSON object a line from stdin,
`{"key", "spec", "out", "cache"}`, compiles it, and answers with a line on the stdout it was
started with: `{"key", "files": [titles]}` or `{"key", "error", "deterministic"}`. Everything
libraries print goes to stderr, which the parent keeps as the log. When stdin ends, because the
parent closed it or died, the worker kills its process group: itself and every compiler it
started.
"""

from __future__ import annotations

import ctypes
import json
import os
import queue
import shutil
import signal
import sys
import threading
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import Any

__all__ = ["OBJECT", "SIGNATURE", "main"]

OBJECT, SIGNATURE = "graph.so", "graph.json"

ENTRY_POINT = "AOTInductorModelContainerCreateWithDevice"


def main() -> None:
    """Serve until stdin ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    orders: queue.Queue[dict[str, Any]] = queue.Queue()
    threading.Thread(target=_listen, args=(orders,), daemon=True).start()
    while True:
        order = orders.get()
        answer: dict[str, object]
        try:
            answer = {"files": _compile(order)}
        except Exception as error:
            traceback.print_exc()
            text = str(error).strip().splitlines()
            answer = {
                "error": f"{type(error).__name__}: {text[0] if text else 'no message'}",
                "deterministic": _is_deterministic(error),
            }
        answers.write(json.dumps({"key": order["key"], **answer}) + "\n")
        answers.flush()


def _is_deterministic(error: Exception) -> bool:
    """Whether the same spec is sure to be refused again by the same sources.

    torch and our own code run the same way each time. Not so what comes from the machine: its
    files, its memory, and the C++ compiler, whose failures do not tell one from the other.
    """
    link: BaseException | None = error
    while link is not None:
        text = f"{type(link).__name__} {link}".lower()
        if isinstance(link, (OSError, MemoryError, ImportError)):
            return False
        if "cppcompile" in text or "c++ compile" in text or "allocate" in text:
            return False
        link = link.__cause__ or link.__context__
    return True


def _listen(orders: queue.Queue[dict[str, Any]]) -> None:
    """Take orders from a thread of its own, so that their end is seen while compiling."""
    key = None
    for line in sys.stdin:
        order = json.loads(line)
        key = order["key"]
        orders.put(order)
    if key is not None:
        _abandon(key)
    os.killpg(0, signal.SIGKILL)


def _abandon(key: str) -> None:
    """Clear the fixed directory if we are the one compiling in it."""
    from neuroncompile.backends.workdir import fixed_path

    if _compiling == key:
        shutil.rmtree(fixed_path(key), ignore_errors=True)


_compiling: str | None = None


def _compile(order: Mapping[str, Any]) -> list[str]:
    global _compiling
    from neuroncompile.backends.cpu.lowering import lower, signature
    from neuroncompile.backends.workdir import fixed_directory

    key, spec, out = order["key"], order["spec"], Path(order["out"])
    out.mkdir(parents=True, exist_ok=True)
    with fixed_directory(key) as directory:
        _compiling = key
        library = lower(spec, directory, Path(order["cache"]) / "headers")
        _verify(library)
        shutil.copyfile(library, out / OBJECT)
        _compiling = None
    text = json.dumps(signature(spec), sort_keys=True, indent=1) + "\n"
    (out / SIGNATURE).write_text(text, encoding="utf-8")
    return [OBJECT, SIGNATURE]


def _verify(library: Path) -> None:
    """Exit status is not trusted: the object must load here and have its entry point."""
    loaded = ctypes.CDLL(str(library))
    if not hasattr(loaded, ENTRY_POINT):
        raise RuntimeError(f"{library.name} was linked without {ENTRY_POINT}")


if __name__ == "__main__":
    main()
