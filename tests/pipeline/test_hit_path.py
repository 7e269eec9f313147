"""A hit is cheap: what it imports and how much it does. What it costs is in tests/bench."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import ROOT, SMALL

HEAVY = {
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
    "obstore",
}
PROGRAM = """
import json, sys
import typer
before = set(sys.modules)
from neuroncompile.cli import main
calls = 0
def count(frame, event, argument):
    global calls
    calls += event == "call"
sys.setprofile(count)
code = main(sys.argv[1:])
sys.setprofile(None)
print(json.dumps({"code": code, "calls": calls, "modules": sorted(set(sys.modules) - before),
                  "typer": sorted(before)}))
"""


@pytest.fixture(scope="module")
def hit(llama: Path, store_root: Path, built_key: str) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, "build", str(llama), *SMALL, "--store", str(store_root)],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    first, _view, measured = done.stdout.splitlines()
    assert first == f"hit  {built_key}"
    found: dict[str, Any] = json.loads(measured)
    return found


def test_a_hit_imports_nothing_heavy(hit: dict[str, Any]) -> None:
    loaded = {name.split(".")[0] for name in (*hit["modules"], *hit["typer"])}
    assert not loaded & HEAVY


def test_a_hit_imports_little_beyond_typer(hit: dict[str, Any]) -> None:
    """Our own rooms, and of the standard library what typer has not already paid for."""
    ours = {name for name in hit["modules"] if name.startswith("neuroncompile")}
    assert len(ours) <= 75
    assert not ours & {"neuroncompile.config.environment", "neuroncompile.config.vllm"}
    others = {name for name in hit["modules"] if not name.startswith(("_", "typer"))} - ours
    assert others <= {"dataclasses", "encodings.ascii", "fcntl", "hashlib", "shlex"}


def test_a_hit_does_little(hit: dict[str, Any]) -> None:
    """Python calls, imports included: the same on a fast and on a busy machine."""
    assert hit["code"] == 0
    assert hit["calls"] <= 30_000
