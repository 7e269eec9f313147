"""The shim, compiled; runs of the drivers under it; counts that the test run prints at its end."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.faults.crash import Trace

ROOT = Path(__file__).parents[2]
SHIM = Path(__file__).with_name("shim.c")

Counts = Callable[[str, Mapping[str, int]], None]


@pytest.fixture(scope="session")
def shim(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The library for `LD_PRELOAD`."""
    path = tmp_path_factory.mktemp("shim") / "shim.so"
    compiler = ["gcc", "-shared", "-fPIC", "-O1", "-Wall", "-Wextra", "-Werror"]
    subprocess.run([*compiler, "-o", str(path), str(SHIM), "-ldl"], check=True)
    return path


@pytest.fixture
def memory() -> Iterator[Path]:
    """A directory in memory where there is a tmpfs: thousands of fsyncs are spared the disk."""
    shm = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="neuroncompile-", dir=shm) as root:
        yield Path(root)


@pytest.fixture
def counts(record_property: Callable[[str, object], None]) -> Counts:
    """Say how much a test has tried; printed under the test run's results."""

    def say(what: str, numbers: Mapping[str, int]) -> None:
        told = ", ".join(f"{number} {name}" for name, number in numbers.items())
        record_property("counts", f"{what}: {told}")

    return say


Drive = Callable[..., dict[str, Any]]


@pytest.fixture
def drive(shim: Path, memory: Path) -> Drive:
    """Run a driver module under the shim; the JSON document that it prints."""

    def run(module: str, *arguments: str, timeout: float = 600, **env: str) -> dict[str, Any]:
        done = subprocess.run(
            [sys.executable, "-m", f"tests.faults.{module}", str(memory), *arguments],
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=timeout,
            env={**os.environ, "PYTHONPATH": str(ROOT), "LD_PRELOAD": str(shim), **env},
        )
        assert done.returncode == 0, done.stderr[-4000:]
        document: dict[str, Any] = json.loads(done.stdout)
        return document

    return run


@pytest.fixture
def record(drive: Drive, memory: Path) -> Callable[[int, int], tuple[Trace, list[str]]]:
    """A recorded history of so many steps, and the steps in words."""

    def make(seed: int, steps: int) -> tuple[Trace, list[str]]:
        log, root = memory / f"log-{seed}", memory / "recorded" / "store"
        told = drive("recording", str(log), str(seed), str(steps))
        return Trace(log, root), [f"seed {seed}", *told["steps"]]

    return make
