"""What a person sees while something long goes on.

On a terminal one moving line; elsewhere a line when something starts, ends or, once a minute,
is still at work. Nothing in quiet mode.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from neuroncompile.output import Output, human_bytes, human_seconds
from neuroncompile.store import Holder

__all__ = ["BuildProgress", "Transfer", "waiter"]

HEARTBEAT = 60.0  # seconds between signs of life off a terminal


class Transfer:
    """Progress of downloads, hashing and packing: a `models.Progress`."""

    def __init__(self, output: Output) -> None:
        self._output = output
        self._what: str | None = None
        self._said = 0.0

    def __call__(self, what: str, done: int, total: int | None) -> None:
        now = time.monotonic()
        amount = human_bytes(done) + (f" of {human_bytes(total)}" if total else "")
        if self._output.moving:
            if now - self._said >= 0.1 or what != self._what or done == total:
                self._output.progress(f"{what}  {amount}" if done else what)
                self._said = now
        elif what != self._what or now - self._said >= HEARTBEAT:
            size = f" ({human_bytes(total)})" if total else ""
            self._output.note(f"{what}{size}" if what != self._what else f"{what}: {amount}")
            self._said = now
        self._what = what


@dataclass
class BuildProgress:
    """Graph i of n, elapsed, and the last sign of life of the compilers."""

    output: Output
    total: int
    done: int = 0
    started: float = field(default_factory=time.monotonic)
    running: dict[str, float] = field(default_factory=dict)
    _said: float = field(default_factory=time.monotonic)

    def start(self, name: str) -> None:
        """A compiler took up the graph."""
        self.running[name] = time.monotonic()
        self.tick()

    def finish(self, name: str, *, how: str = "compiled") -> None:
        """The graph is in the store."""
        began = self.running.pop(name, None)
        self.done += 1
        took = f" in {human_seconds(time.monotonic() - began)}" if began else ""
        self.output.note(f"  {self.done}/{self.total} {how} {name}{took}")
        self._said = time.monotonic()
        self.tick()

    def seconds(self, name: str) -> float:
        """How long a graph has been with its compiler."""
        now = time.monotonic()
        return now - self.running.get(name, now)

    def tick(self, silent: float = 0.0) -> None:
        """Called at least every second while compilers run; `silent` is since a sign of life."""
        now = time.monotonic()
        elapsed = human_seconds(now - self.started)
        names = ", ".join(self.running)
        if silent >= HEARTBEAT:
            elapsed += f", silent for {human_seconds(silent)}"
        if self.output.moving:
            self.output.progress(f"  {self.done}/{self.total} done, {elapsed}: {names}")
        elif now - self._said >= HEARTBEAT:
            self.output.note(f"  still at work: {names} ({self.done}/{self.total}, {elapsed})")
            self._said = now


def waiter(output: Output, doing: str) -> Callable[[Holder, float], None]:
    """Says who holds a lock: at once, then on a terminal always, elsewhere once a minute."""
    said: list[float] = []

    def wait(holder: Holder, waited: float) -> None:
        text = (
            f"waiting for pid {holder.pid} on {holder.host}, which {doing} "
            f"({human_seconds(waited)} so far)"
        )
        if output.moving:
            output.progress(text)
        elif not said or waited - said[-1] >= HEARTBEAT:
            output.note(text)
            said.append(waited)

    return wait
