"""Compiling for real: bytes that repeat, flags that reach g++, compilers that fail or die."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from neuroncompile.backends.base import Graph
from neuroncompile.backends.cpu.compile import check_toolchain, compile_graphs
from neuroncompile.backends.cpu.identity import identity
from neuroncompile.backends.cpu.program import graphs_of
from neuroncompile.backends.workdir import fixed_path
from neuroncompile.errors import CompileError, ToolchainError
from neuroncompile.hardware.targets import host_arch, host_isa

CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "vocab_size": 96,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
    "rms_norm_eps": 1e-5,
    "hidden_act": "silu",
    "tie_word_embeddings": True,
    "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0},
}

LOWEST = {"x86_64": "x86-64-v2", "aarch64": "armv8-a"}[host_arch()]


def compile_spec(isa: str | None = None, **target: str) -> dict[str, Any]:
    return {
        "model": CONFIG,
        "neuron": {
            "batch_size": 2,
            "seq_len": 32,
            "max_context_length": 32,
            "context_encoding_buckets": [32],
            "token_generation_buckets": [32],
            "torch_dtype": "float32",
        },
        "target": {"platform": "cpu", "arch": host_arch(), "isa": isa or host_isa()} | target,
        "toolchain": identity(),
        "optlevel": "1",
    }


def graph(submodel: str, region: str, isa: str | None = None) -> Graph:
    """The one graph of that region; an edge is of any submodel."""
    found = [g for g in graphs_of(compile_spec(isa)) if g.region == region]
    return next(g for g in found if region == "edge" or g.submodel == submodel)


STEP = graph("token_generation_model", "layer")
PROMPT = graph("context_encoding_model", "layer")
EDGE = graph("", "edge")
LOWEST_EDGE = graph("", "edge", LOWEST)


def fake_compiler(directory: Path, action: str) -> str:
    """A g++ that does `action` first when it is asked to compile; "$*" are its arguments."""
    path = directory / "bin" / "g++"
    path.parent.mkdir(parents=True)
    path.write_text(
        f'#!/bin/sh\ncase " $* " in *" -c "*)\n{action}\n;; esac\nexec /usr/bin/env g++ "$@"\n'
    )
    path.chmod(0o755)
    return str(path)


@dataclass(frozen=True)
class Run:
    """One call of `compile_graphs`: bytes by graph and title, and what g++ was called with."""

    files: Mapping[str, Mapping[str, bytes]]
    started: Sequence[str]
    commands: Sequence[str]
    failure: CompileError


@pytest.fixture(scope="session")
def first_run(tmp_path_factory: pytest.TempPathFactory, machine_cache: Path) -> Run:
    """Three graphs in one compiler process, through a g++ that listens and refuses a fourth."""
    root = tmp_path_factory.mktemp("first")
    commands, started = root / "commands", list[str]()
    files = {}
    action = (
        f'echo "$*" >> {commands}\n'
        f'case "$*" in *{fixed_path(EDGE.key)}*) echo no space left on mars >&2; exit 1;; esac'
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CXX", fake_compiler(root, action))
        graphs = (LOWEST_EDGE, PROMPT, STEP, EDGE)
        compiling = compile_graphs(
            graphs, scratch=root / "s", cache=machine_cache, jobs=1, on_start=started.append
        )
        with pytest.raises(CompileError) as caught:  # noqa: PT012
            for g, made in compiling:
                files[g.key] = {f.title: f.path.read_bytes() for f in made}
    return Run(files, started, commands.read_text().splitlines(), caught.value)


def test_every_graph_is_handed_over_with_its_files(first_run: Run) -> None:
    assert list(first_run.files) == [LOWEST_EDGE.key, PROMPT.key, STEP.key]
    assert first_run.started == [LOWEST_EDGE.name, PROMPT.name, STEP.name, EDGE.name]
    for files in first_run.files.values():
        assert set(files) == {"graph.so", "graph.json"}
        assert files["graph.so"].startswith(b"\x7fELF")
    assert not fixed_path(STEP.key).exists()


def test_the_compiler_is_told_the_target_and_never_native(first_run: Run) -> None:
    def commands(g: Graph) -> list[str]:
        return [line for line in first_run.commands if str(fixed_path(g.key)) in line]

    assert commands(STEP)
    assert commands(LOWEST_EDGE)
    assert all(f"-march={host_isa()} " in line for line in commands(STEP))
    for line in commands(LOWEST_EDGE):
        assert f"-march={LOWEST} " in line
        assert "-mavx" not in line
    assert not any("native" in line for line in first_run.commands)


def test_nothing_of_this_host_is_in_the_bytes(first_run: Run) -> None:
    for files in first_run.files.values():
        for path in (sys.prefix, os.path.expanduser("~") + "/", str(Path(__file__).parents[2])):
            assert path.encode() not in files["graph.so"]
            assert path.encode() not in files["graph.json"]


@pytest.mark.slow
def test_a_second_compile_gives_the_same_bytes(
    first_run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Alone in its process, in another directory and environment, without precompiled headers."""
    (tmp_path / "file").touch()
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    monkeypatch.setenv("TORCHINDUCTOR_CPP_MIN_CHUNK_SIZE", "1")
    monkeypatch.chdir(tmp_path)
    (made,) = [
        {f.title: f.path.read_bytes() for f in files}
        for _, files in compile_graphs([STEP], scratch=tmp_path / "s", cache=tmp_path / "file")
    ]
    assert made == first_run.files[STEP.key]
    assert not (tmp_path / "s").exists()


def test_a_failure_names_graph_and_log_and_keeps_what_was_finished(first_run: Run) -> None:
    error = first_run.failure
    assert STEP.key in first_run.files
    assert error.exit_code == 6
    assert EDGE.name in str(error)
    log = Path(error.details["log"])
    assert "no space left on mars" in log.read_text()
    assert str(log) in str(error.hint)
    assert error.details["last_lines"]
    assert not fixed_path(EDGE.key).exists()


def test_a_killed_compiler_is_reported_with_its_signal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CXX", fake_compiler(tmp_path, "kill -9 $PPID; sleep 9"))
    with pytest.raises(CompileError, match=r"killed by SIGKILL.*memory") as caught:
        list(compile_graphs([EDGE], scratch=tmp_path / "s", cache=tmp_path / "c"))
    assert caught.value.details["graph"] == EDGE.name
    assert Path(caught.value.details["log"]).is_file()
    assert not fixed_path(EDGE.key).exists()


@pytest.mark.slow
def test_an_interrupt_kills_everything_that_was_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pid_file = tmp_path / "pid"
    monkeypatch.setenv("CXX", fake_compiler(tmp_path, hang(pid_file)))

    def interrupt_once_it_compiles() -> None:
        if pid_file.exists():
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        list(
            compile_graphs(
                [EDGE],
                scratch=tmp_path / "s",
                cache=tmp_path / "c",
                on_tick=interrupt_once_it_compiles,
            )
        )
    assert ended(int(pid_file.read_text()))
    assert not fixed_path(EDGE.key).exists()
    assert not (tmp_path / "s").exists()


def test_a_killed_build_takes_its_compilers_along(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pid_file = tmp_path / "pid"
    monkeypatch.setenv("CXX", fake_compiler(tmp_path, hang(pid_file)))
    program = (
        "import sys, pathlib; sys.path.insert(0, sys.argv[2]);"
        "import test_compile as t;"
        "root = pathlib.Path(sys.argv[1]);"
        "list(t.compile_graphs([t.EDGE], scratch=root / 's', cache=root / 'c'))"
    )
    here = str(Path(__file__).parent)
    build = subprocess.Popen([sys.executable, "-c", program, str(tmp_path), here])
    try:
        wait_until(pid_file.exists, seconds=180)
    finally:
        build.send_signal(signal.SIGKILL)
        build.wait()
    compiler = int(pid_file.read_text())
    wait_until(lambda: ended(compiler), seconds=10)
    assert not fixed_path(EDGE.key).exists()


def test_a_missing_compiler_is_said_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    with pytest.raises(ToolchainError) as caught:
        check_toolchain()
    assert caught.value.hint == "apt-get install g++"
    monkeypatch.setenv("CXX", "clang++-99")
    with pytest.raises(ToolchainError, match=r"clang\+\+-99"):
        next(compile_graphs([EDGE], scratch=tmp_path / "s", cache=tmp_path / "c"))


def test_another_architecture_is_refused(tmp_path: Path) -> None:
    other = "aarch64" if host_arch() == "x86_64" else "x86_64"
    spec = {**EDGE.spec, "target": {**EDGE.spec["target"], "arch": other}}
    foreign = Graph(
        EDGE.submodel, EDGE.region, EDGE.batch, EDGE.bucket, 0, spec, EDGE.key, EDGE.name
    )
    with pytest.raises(ToolchainError, match=other):
        next(compile_graphs([foreign], scratch=tmp_path / "s", cache=tmp_path / "c"))


def hang(pid_file: Path) -> str:
    return f"echo $$ > {pid_file}.new; mv {pid_file}.new {pid_file}; exec sleep 600"


def ended(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return True
    return state in "ZX"


def wait_until(condition: Any, *, seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.05)


def test_only_what_is_sure_to_come_again_is_called_deterministic(
    first_run: Run, tmp_path: Path
) -> None:
    """A spec our own code cannot lower is refused every time; a compiler's exit proves nothing."""
    assert first_run.failure.details["deterministic"] is False
    spec = {**EDGE.spec, "region": "whole"}
    broken = Graph(EDGE.submodel, "whole", EDGE.batch, EDGE.bucket, 0, spec, EDGE.key, EDGE.name)
    with pytest.raises(CompileError) as caught:
        list(compile_graphs([broken], scratch=tmp_path / "s", cache=tmp_path / "c"))
    assert caught.value.details["deterministic"] is True
