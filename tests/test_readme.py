"""README is true: every command in it runs, in order, and its Python too."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.conftest import ROOT, Run

README = (ROOT / "README.md").read_text()
BLOCKS = re.findall(r"```(\w+)\n(.*?)```", README, re.DOTALL)
COMMANDS = [line for kind, text in BLOCKS if kind == "console" for line in text.splitlines()]
SETUP, TESTS, *USES = COMMANDS
MISSES = "--batch-size 2"  # the one command that shows a miss

ASKS = "".join(f'{{"prompt": "{p}", "max_new_tokens": 4}}\n' for p in ("The capital is", "Hi"))


@pytest.fixture(scope="module")
def workplace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An empty directory with the one file the commands name."""
    directory = tmp_path_factory.mktemp("readme")
    (directory / "asks.jsonl").write_text(ASKS)
    return directory


@pytest.fixture(scope="module")
def environment(workplace: Path, smollm2_store: Path) -> dict[str, str]:
    binaries = workplace / "bin"
    binaries.mkdir()
    script = binaries / "neuroncompile"
    script.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m neuroncompile "$@"\n')
    script.chmod(0o755)
    return {
        **os.environ,
        "PATH": f"{binaries}:{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
        "NEURONCOMPILE_STORE": str(smollm2_store),
    }


def test_the_two_commands_come_first() -> None:
    assert "pip install -e '.[cpu]'" in SETUP
    assert SETUP.endswith('neuroncompile run smollm2-135m --chat "What is the capital of France?"')
    assert ".venv/bin/pytest" in TESTS
    continuous = (ROOT / ".ci" / "run").read_text()
    assert SETUP in continuous
    assert TESTS in continuous
    [slow] = re.findall(r"`(\S+pytest .*-m slow)`", README)
    assert slow in continuous


@pytest.mark.model
@pytest.mark.parametrize("command", USES)
def test_command(command: str, workplace: Path, environment: dict[str, str]) -> None:
    done = subprocess.run(
        ["bash", "-c", command],
        cwd=workplace,
        env=environment,
        capture_output=True,
        text=True,
        timeout=600,
        stdin=subprocess.DEVNULL,
    )
    expected = 3 if MISSES in command else 0
    assert done.returncode == expected, done.stdout + done.stderr
    assert "Traceback" not in done.stderr


def test_the_matrix_is_a_recipe(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    [text] = [text for kind, text in BLOCKS if kind == "toml" and "[matrix]" in text]
    [point] = re.findall(r"`'(grid\[.*?\])'`", README)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "recipes").mkdir()
    (tmp_path / "recipes" / "grid.toml").write_text(text)
    done = run("prewarm", "grid", "--check", "--json")
    assert done.code == 3, done.err
    programs = done.document["result"]["programs"]
    assert len({program["key"] for program in programs}) == 4
    named = run("build", point, "--dry-run", "--json")
    assert named.document["result"]["key"] == programs[2]["key"]
    assert programs[2]["name"] == point


@pytest.mark.model
def test_python(workplace: Path, environment: dict[str, str]) -> None:
    [code] = [text for kind, text in BLOCKS if kind == "python"]
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=workplace,
        env=environment,
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    key, hit = done.stdout.splitlines()[0].split()
    assert re.fullmatch("[0-9a-f]{64}", key)
    assert hit == "True"
    assert "Paris" in done.stdout


@pytest.mark.slow
@pytest.mark.model
@pytest.mark.skipif(
    "NEURONCOMPILE_TEST_STORE" in os.environ,
    reason="whoever gave the tests a store has run the first command, from an empty one",
)
def test_set_up_and_run(tmp_path: Path, smollm2_store: Path) -> None:
    """The first command on a clean copy, in a new environment; the program is in the store."""
    copy = tmp_path / "clean"
    listed = subprocess.run(
        ["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    for name in listed.stdout.splitlines():
        if (ROOT / name).is_file():
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, copy / name)
    env = {**os.environ, "NEURONCOMPILE_STORE": str(smollm2_store)}
    env.pop("PYTHONPATH", None)
    done = subprocess.run(
        ["bash", "-c", SETUP], cwd=copy, env=env, capture_output=True, text=True, timeout=1200
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.endswith("The capital of France is Paris.\n")
    assert "compiling" not in done.stderr
    _, _, again = SETUP.rpartition("&& ")
    began = time.perf_counter()
    twice = subprocess.run(["bash", "-c", again], cwd=copy, env=env, capture_output=True, text=True)
    seconds = time.perf_counter() - began
    assert twice.stdout == "The capital of France is Paris.\n"
    print(f"the second answer took {seconds:.2f} s")  # noqa: T201  -rP shows it
