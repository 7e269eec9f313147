"""A hit is cheap: what it imports and what it costs."""

from __future__ import annotations

import os
import resource
import statistics
import subprocess
import sys
from pathlib import Path

from tests.conftest import ROOT, SMALL

HEAVY = (
    "torch",
    "transformers",
    "numpy",
    "pydantic",
    "rich",
    "asyncio",
    "urllib3",
    "msgspec",
    "huggingface_hub",
    "tokenizers",
    "safetensors",
    "gguf",
)
LIMIT = 0.150  # seconds of CPU, user and system


def hit(llama: Path, store: Path, code: str) -> subprocess.CompletedProcess[str]:
    argv = ["build", str(llama), *SMALL, "--store", str(store)]
    program = f"import sys; from neuroncompile.cli import main; code = main({argv!r}); {code}"
    return subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": ""},
    )


def test_a_hit_imports_nothing_heavy(llama: Path, store_root: Path, built_key: str) -> None:
    done = hit(llama, store_root, f"print([m for m in {HEAVY} if m in sys.modules])")
    first, _view, modules = done.stdout.splitlines()
    assert first == f"hit  {built_key}"
    assert modules == "[]"


def test_a_hit_costs_little_cpu(llama: Path, store_root: Path, built_key: str) -> None:
    """CPU time, not wall time: the promise holds on a busy machine too."""

    def cost() -> float:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        hit(llama, store_root, "sys.exit(code)")
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    cost()  # byte-compiles
    assert statistics.median(cost() for _ in range(5)) <= LIMIT
