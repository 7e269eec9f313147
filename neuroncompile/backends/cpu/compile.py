"""Compile graphs in child processes and yield each as it finishes."""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import IO

from neuroncompile.backends.base import File, Graph
from neuroncompile.backends.workdir import fixed_path, remove_leftover
from neuroncompile.errors import CompileError, StoreError, ToolchainError
from neuroncompile.hardware.targets import host_arch

__all__ = ["check_toolchain", "compile_graphs", "compiler_version"]

MEDIA_TYPES = {".so": "application/x-sharedlib", ".json": "application/json"}

INHERITED = ("PATH", "HOME", "TMPDIR", "LD_LIBRARY_PATH", "CXX")
"""All a compiler gets of our environment; anything else could change its output unseen."""

WORKER_BYTES = 1 << 30  # torch, Inductor and one g++ at its peak

DISK_FULL = ("No space left on device", "Disk quota exceeded")
"""How the C library, and so Python and g++ alike, say it."""

TICK_SECONDS = 0.25

TIME_LIMIT = 3600.0  # seconds for one graph; the largest seen took minutes


def check_toolchain() -> str:
    """Path of the C++ compiler, `CXX` or g++.

    Raises:
        ToolchainError: there is none.
    """
    name = os.environ.get("CXX") or "g++"
    path = shutil.which(name)
    if path is None:
        raise ToolchainError(
            f"the cpu backend compiles with {name}, which is not installed",
            field="CXX",
            value=name,
            legal="a C++20 compiler",
            hint="apt-get install g++" if name == "g++" else "unset CXX or correct it",
        )
    return path


def compiler_version() -> str:
    """First line of the C++ compiler's `--version`: for provenance, never in a key."""
    shown = subprocess.run([check_toolchain(), "--version"], capture_output=True, text=True)
    return (shown.stdout.splitlines() or ["unknown"])[0]


def compile_graphs(
    graphs: Sequence[Graph],
    *,
    scratch: Path,
    cache: Path,
    jobs: int | None = None,
    on_start: Callable[[str], None] = lambda name: None,
    on_tick: Callable[[], None] = lambda: None,
) -> Iterator[tuple[Graph, list[File]]]:
    """Compile `graphs` and yield each with its files as it finishes.

    Files lie in `scratch` until the next graph is asked for. Abandoning the iterator, or an
    exception in it, kills the compilers and everything they started.

    Args:
        scratch: directory for outputs and logs, removed at the end; after a failure the logs
            are kept.
        cache: directory of this machine, kept between builds; see `headers`.
        jobs: compilers at once; None for what cores and free memory allow.
        on_start: told a graph's name when a compiler takes it.
        on_tick: called a few times a second.

    Raises:
        CompileError: a compiler failed or died; graphs finished before were yielded.
        StoreError: no space left to compile or to keep its output.
        ToolchainError: no C++ compiler, or none for the target's architecture.
    """
    check_toolchain()
    _check_architecture(graphs)
    waiting = list(graphs)
    workers: list[_Worker] = []
    failure: CompileError | StoreError | None = None
    try:
        for index in range(min(jobs or _default_jobs(), len(waiting))):
            workers.append(_Worker(scratch, index, cache))
        for worker in workers:
            worker.take(waiting.pop(0), on_start)
        while failure is None and any(worker.graph for worker in workers):
            on_tick()
            for worker in workers:
                worker.check_time()
            for worker in _ready(workers):
                graph = worker.graph
                assert graph is not None
                try:
                    files = worker.result()
                except (CompileError, StoreError) as error:
                    failure = failure or error  # raised once the others' results are out
                    continue
                if waiting and failure is None:
                    worker.take(waiting.pop(0), on_start)
                else:
                    worker.graph = None
                yield graph, files
                shutil.rmtree(scratch / graph.key, ignore_errors=True)
        if failure is not None:
            raise failure
    finally:
        for worker in workers:
            worker.stop()
        if not isinstance(failure, CompileError):
            shutil.rmtree(scratch, ignore_errors=True)


class _Worker:
    """One compiler process and the graph it is busy with."""

    def __init__(self, scratch: Path, index: int, cache: Path) -> None:
        scratch.mkdir(parents=True, exist_ok=True)
        self.scratch, self.cache = scratch, cache
        self.log = log = scratch / f"compiler-{index}.log"
        self.graph: Graph | None = None
        self.began = 0.0
        with log.open("wb") as stderr:
            self.process = subprocess.Popen(
                [sys.executable, "-P", "-m", "neuroncompile.backends.cpu.worker"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
                env=_environment(),
                cwd=scratch,
                start_new_session=True,
            )

    @property
    def answers(self) -> IO[bytes]:
        assert self.process.stdout is not None
        return self.process.stdout

    def take(self, graph: Graph, on_start: Callable[[str], None]) -> None:
        assert self.process.stdin is not None
        order = {
            "key": graph.key,
            "spec": graph.spec,
            "out": str(self.scratch / graph.key),
            "cache": str(self.cache),
        }
        self.graph, self.began = graph, time.monotonic()
        on_start(graph.name)
        try:
            self.process.stdin.write(json.dumps(order).encode() + b"\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            pass  # it died; reading its answer says how

    def check_time(self) -> None:
        """Raise when the compiler has not answered for too long."""
        if self.graph is not None and time.monotonic() - self.began > TIME_LIMIT:
            raise self._failure(self.graph, f"no answer in {TIME_LIMIT / 60:.0f} minutes")

    def result(self) -> list[File]:
        graph = self.graph
        assert graph is not None
        line = self.answers.readline()
        if not line:
            raise self._failure(graph, _ending(self.process.wait()))
        answer = json.loads(line)
        if "error" in answer:
            raise self._failure(graph, answer["error"], answer["deterministic"])
        files = []
        for title in answer["files"]:
            path = self.scratch / graph.key / title
            if not path.is_file() or path.stat().st_size == 0:
                raise self._failure(graph, f"it reported {title} and did not write it")
            files.append(File(title, path, MEDIA_TYPES[path.suffix]))
        return files

    def stop(self) -> None:
        """Kill the compiler with everything it started, and clear its fixed directory."""
        if self.process.poll() is None or self.graph is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                with contextlib.suppress(BrokenPipeError):
                    pipe.close()
        if self.graph is not None:
            remove_leftover(self.graph.key)
            shutil.rmtree(self.scratch / self.graph.key, ignore_errors=True)

    def _failure(
        self, graph: Graph, how: str, deterministic: bool = False
    ) -> CompileError | StoreError:
        lines = self.log.read_text(encoding="utf-8", errors="replace").splitlines()
        if any(sign in line for line in [how, *lines] for sign in DISK_FULL):
            return StoreError(
                f"no space left while compiling {graph.name}",
                hint=f"free space on {self.log.parent} and {Path(fixed_path(graph.key)).parent}, "
                "then run the same command; finished graphs are kept",
                details={"graph": graph.name, "key": graph.key, "how": how},
            )
        return CompileError(
            f"compiling {graph.name} failed: {how}",
            hint=f"the compiler's log is {self.log}",
            details={
                "graph": graph.name,
                "key": graph.key,
                "how": how,
                "deterministic": deterministic,
                "log": str(self.log),
                "last_lines": [line for line in lines if line.strip()][-12:],
            },
        )


def _check_architecture(graphs: Sequence[Graph]) -> None:
    for graph in graphs:
        wanted = graph.spec["target"]["arch"]
        if wanted != host_arch():
            raise ToolchainError(
                f"{graph.name} is for {wanted}; the compiler here makes code for {host_arch()}",
                field="target",
                value=wanted,
                legal=host_arch(),
                hint=f"build it on a {wanted} host, or leave --target out",
            )


def _ready(workers: Sequence[_Worker]) -> list[_Worker]:
    """Busy workers that answered or died, after at most a tick."""
    with selectors.DefaultSelector() as selector:
        for worker in workers:
            if worker.graph is not None:
                selector.register(worker.answers, selectors.EVENT_READ, worker)
        return [key.data for key, _ in selector.select(TICK_SECONDS)]


def _environment() -> dict[str, str]:
    package = Path(__file__).resolve().parents[3]
    kept = {name: os.environ[name] for name in INHERITED if name in os.environ}
    paths = [str(package), *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    return kept | {
        "PYTHONPATH": os.pathsep.join(paths),
        "LC_ALL": "C.UTF-8",
        "PYTHONHASHSEED": "0",
        "PYTHONDONTWRITEBYTECODE": "1",
        "OMP_NUM_THREADS": "1",
        "TORCHINDUCTOR_COMPILE_THREADS": "1",
    }


def _default_jobs() -> int:
    cores = len(os.sched_getaffinity(0))
    try:
        with open("/proc/meminfo", encoding="ascii") as lines:
            kib = next(int(x.split()[1]) for x in lines if x.startswith("MemAvailable"))
    except (OSError, StopIteration):
        return cores
    return max(1, min(cores, kib * 1024 // WORKER_BYTES))


def _ending(code: int) -> str:
    if code >= 0:
        return f"the compiler ended with status {code} and no answer"
    name = signal.Signals(-code).name
    memory = "; the kernel does that when memory runs out" if code == -signal.SIGKILL else ""
    return f"the compiler was killed by {name}{memory}"
