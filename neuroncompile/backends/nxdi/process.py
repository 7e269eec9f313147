"""A worker process and the orders it is given.

The worker and every compiler it starts are one process group, with its own directory, log and
environment. Whatever ends a build ends the group.
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO, Any, NamedTuple

from neuroncompile.backends.nxdi.worker import HEAD
from neuroncompile.errors import ToolchainError
from neuroncompile.hardware.host import MemoryWatch

__all__ = ["Limits", "OrderFailed", "OverLimit", "Worker", "WorkerEnded", "identity_of"]

SOURCE = Path(__file__).with_name("worker.py")
TICK_SECONDS = 0.25
GRACE_SECONDS = 2.0  # from SIGTERM to SIGKILL: time for a compiler to remove its own files


class WorkerEnded(Exception):  # noqa: N818 - an outcome, turned into an error of the tree
    """The process ended without an answer.

    Attributes:
        status: as `subprocess` has it: negative for a signal.
        killed_for_memory: the kernel's own count of out-of-memory kills went up meanwhile.
    """

    def __init__(self, status: int, *, killed_for_memory: bool) -> None:
        super().__init__(f"the worker ended with status {status}")
        self.status, self.killed_for_memory = status, killed_for_memory


class OrderFailed(Exception):  # noqa: N818
    """The worker answered with an error; `head` is its frame's head."""

    def __init__(self, head: Mapping[str, Any]) -> None:
        super().__init__(str(head.get("message")))
        self.head = head


class OverLimit(Exception):  # noqa: N818
    """A limit of ours was passed: `which` is "time", "silence" or "memory"."""

    def __init__(self, which: str, text: str) -> None:
        super().__init__(text)
        self.which = which


class Limits(NamedTuple):
    """When a worker is stopped.

    Attributes:
        seconds: for one order; None for no limit.
        silence: seconds without an event, a line of the log or a change in the work tree.
        memory: bytes of resident memory of the whole group; None for no limit of ours.
    """

    seconds: float | None = None
    silence: float | None = None
    memory: int | None = None


class Worker:
    """One worker process.

    Args:
        python: the toolchain's interpreter.
        environment: the whole environment; nothing of ours is added.
        directory: where it runs; NxD writes files there.
        log: everything that it and its compilers print is appended here.
    """

    def __init__(
        self,
        python: str,
        *,
        environment: Mapping[str, str],
        directory: Path,
        log: Path,
        limits: Limits = Limits(),  # noqa: B008 - a tuple
    ) -> None:
        self.log, self.limits = log, limits
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("ab") as stderr:
            self.process = subprocess.Popen(
                [python, "-s", "-B", str(SOURCE)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
                env=dict(environment),
                cwd=directory,
                start_new_session=True,
            )
        self.memory = MemoryWatch(self.process.pid)
        self._watched: list[Path] = [log]

    def watch(self, directory: Path) -> None:
        """Take changes below `directory` as signs of life, too."""
        self._watched.append(directory)

    def order(
        self,
        head: Mapping[str, Any],
        body: Sequence[bytes | memoryview] = (),
        *,
        on_event: Callable[[Mapping[str, Any]], Mapping[str, Any] | None] = lambda event: None,
        on_tick: Callable[[float], None] = lambda silent: None,
    ) -> tuple[dict[str, Any], bytes]:
        """Give an order and wait for its result.

        Args:
            body: raw tensors.
            on_event: told every event; what it returns is the answer where one is asked for.
            on_tick: called a few times a second with the seconds since the last sign of life.

        Raises:
            OrderFailed: the worker says why it could not.
            WorkerEnded: it died.
            OverLimit: it was stopped for time, silence or memory.
        """
        self._send(head, body)
        began = sign = time.monotonic()
        seen = self._signs()
        while True:
            if not self._readable():
                now = time.monotonic()
                if (signs := self._signs()) != seen:
                    seen, sign = signs, now
                self.memory.sample()
                on_tick(now - sign)
                self._check(now - began, now - sign)
                continue
            frame = self._read()
            if frame is None:
                raise self._ended()
            event, data = frame
            sign = time.monotonic()
            if event["event"] != "done" or not data:  # not at every token
                self.memory.sample()
            if event["event"] == "done":
                return dict(event["result"]), data
            if event["event"] == "failed":
                raise OrderFailed(event)
            answer = on_event(event)
            if "question" in event:
                self._send({**(answer or {}), "answer": event["question"]}, ())

    def close(self) -> None:
        """End the worker and everything it started. Closing twice is harmless."""
        if self.process.poll() is None and self.process.stdin is not None:
            with contextlib.suppress(BrokenPipeError, OSError):
                self.process.stdin.close()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(GRACE_SECONDS)
        self.kill()

    def kill(self) -> None:
        """End the whole group now."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                with contextlib.suppress(BrokenPipeError, OSError):
                    pipe.close()

    def _send(self, head: Mapping[str, Any], body: Sequence[bytes | memoryview]) -> None:
        pipe = self.process.stdin
        assert pipe is not None
        data = json.dumps(head).encode()
        size = sum(memoryview(part).nbytes for part in body)
        try:
            pipe.write(HEAD.pack(len(data), size) + data)
            for part in body:
                pipe.write(part)
            pipe.flush()
        except BrokenPipeError:
            pass  # it died; reading its answer says how

    @property
    def _answers(self) -> IO[bytes]:
        assert self.process.stdout is not None
        return self.process.stdout

    def _readable(self) -> bool:
        with selectors.DefaultSelector() as selector:
            selector.register(self._answers, selectors.EVENT_READ)
            return bool(selector.select(TICK_SECONDS))

    def _read(self) -> tuple[dict[str, Any], bytes] | None:
        head = self._exactly(HEAD.size)
        if head is None:
            return None
        length, size = HEAD.unpack(head)
        data, body = self._exactly(length), self._exactly(size)
        return None if data is None or body is None else (json.loads(data), body)

    def _exactly(self, size: int) -> bytes | None:
        parts = bytearray()
        while len(parts) < size:
            part = os.read(self._answers.fileno(), size - len(parts))
            if not part:
                return None
            parts += part
        return bytes(parts)

    def _signs(self) -> tuple[float, ...]:
        return tuple(_latest(path) for path in self._watched)

    def _check(self, elapsed: float, silent: float) -> None:
        limits = self.limits
        over: tuple[str, str] | None = None
        if limits.seconds is not None and elapsed > limits.seconds:
            over = ("time", f"no result in {limits.seconds / 60:.0f} minutes")
        elif limits.silence is not None and silent > limits.silence:
            over = ("silence", f"no sign of life for {limits.silence / 60:.0f} minutes")
        elif limits.memory is not None and self.memory.resident > limits.memory:
            over = (
                "memory",
                f"{self.memory.resident / 1e9:.1f} GB resident, above the limit of "
                f"{limits.memory / 1e9:.1f} GB",
            )
        if over is not None:
            self.kill()
            raise OverLimit(*over)

    def _ended(self) -> WorkerEnded:
        status = self.process.wait()
        killed = self.memory.killed()
        self.kill()
        return WorkerEnded(status, killed_for_memory=killed)


def identity_of(python: str) -> dict[str, str]:
    """Package → version of another interpreter's toolchain; empty where it has none.

    Raises:
        ToolchainError: it does not answer.
    """
    with tempfile.TemporaryDirectory(prefix="neuroncompile-identity-") as directory:
        log = Path(directory, "log")
        try:
            worker = Worker(
                python,
                environment={"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C.UTF-8"},
                directory=Path(directory),
                log=log,
                limits=Limits(seconds=120),
            )
        except OSError as error:
            raise _mute(python, error.strerror or str(error)) from None
        try:
            result, _ = worker.order({"op": "identity"})
        except (OrderFailed, WorkerEnded, OverLimit) as error:
            last = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
            raise _mute(python, last[-1] if last else str(error)) from None
        finally:
            worker.close()
    packages: dict[str, str] = result["packages"]
    return packages


def _mute(python: str, why: str) -> ToolchainError:
    return ToolchainError(
        f"{python} does not say what it holds: {why}",
        field="toolchain.python",
        value=python,
        legal="a Python of 3.9 or newer with the Neuron SDK",
        hint=f"try it: {python} --version",
    )


def _latest(path: Path) -> float:
    """When a file, or the newest thing in a tree, last changed; 0 where there is nothing."""
    newest = 0.0
    try:
        newest = path.stat().st_mtime
        if path.is_dir():
            for entry in os.scandir(path):
                newest = max(
                    newest,
                    _latest(Path(entry.path))
                    if entry.is_dir(follow_symlinks=False)
                    else entry.stat(follow_symlinks=False).st_mtime,
                )
    except OSError:
        pass
    return newest
