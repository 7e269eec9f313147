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
TYPER = 0.075  # of them, importing typer on the machine the limit was set on, when quiet


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


def cost(command: list[str]) -> float:
    """CPU seconds of one process, user and system."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    env = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": ""}
    subprocess.run(command, check=True, capture_output=True, env=env)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def test_a_hit_costs_little_cpu(llama: Path, store_root: Path, built_key: str) -> None:
    """CPU time, not wall time; a busy machine's slower cores are measured in the same minute."""
    hit_command = [sys.executable, "-m", "neuroncompile", "build", str(llama), *SMALL]
    hit_command += ["--store", str(store_root)]
    typer_command = [sys.executable, "-c", "import typer"]
    cost(hit_command)  # byte-compiles
    pairs = [(cost(hit_command), cost(typer_command)) for _ in range(7)]
    hits, typers = (statistics.median(values) for values in zip(*pairs, strict=True))
    slowness = min(3.0, max(1.0, typers / TYPER))
    assert hits <= LIMIT * slowness, f"{hits * 1e3:.0f} ms, this machine {slowness:.2f}x slower"
