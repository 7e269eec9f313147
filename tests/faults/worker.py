"""One of many processes that use a store until they are killed.

    python -m tests.faults.worker ROLE ROOT LOG SEED

Roles: `publish`, `read`, `collect`. Every event is one letter at the end of LOG, because who is
killed cannot tell at the end: p published, h hit, m miss, v files of a hit read and compared,
g gone before it could be leased, c collection, r removed artifact. Under LOG.bad goes what must
not be.
"""

from __future__ import annotations

import os
import random
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path

import neuroncompile.store.gc
import neuroncompile.store.leases  # noqa: F401
from neuroncompile.errors import CorruptArtifactError
from neuroncompile.store import Store
from neuroncompile.store.gc import Policy
from tests.faults.world import KIND, files, key, publish, quick, read

NUMBERS = range(24)
TEXTS = ("x", "y")


class Worker:
    """Random work on one store."""

    def __init__(self, root: Path, log: Path, seed: int) -> None:
        self.root = root
        self.chance = random.Random(seed)
        self.log = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        self.bad = log.with_suffix(".bad")
        self.store = Store(root, on_warning=self.warned)
        # Where locks do not hold, what is in use may be collected; it is never wrong.
        self.locks_hold = "FAULT_FLOCK" not in os.environ

    def note(self, event: str) -> None:
        os.write(self.log, event.encode())

    def blame(self, what: str) -> None:
        with self.bad.open("a") as file:
            file.write(f"{os.getpid()} {what}\n")

    def warned(self, warning: str) -> None:
        if "missing" not in warning.rpartition(": ")[2]:
            self.blame(f"warning: {warning}")

    def publish(self) -> None:
        number, text = self.chance.choice(NUMBERS), self.chance.choice(TEXTS)
        way = self.chance.choice([publish, quick])
        if way(self.store, number, text).key != key(number):
            self.blame(f"published {number}, got another key")
        self.note("p")

    def read(self) -> None:
        number = self.chance.choice(NUMBERS)
        verify = self.chance.choice(["stat", "full"])
        artifact = self.store.lookup(KIND, key(number), verify=verify)  # type: ignore[arg-type]
        if artifact is None:
            self.note("m")
            return
        self.note("h")
        try:
            with self.store.lease(artifact) as view:
                self.compare(number, read(view, artifact))
                time.sleep(self.chance.uniform(0, 0.02))
                self.compare(number, read(view, artifact))
        except CorruptArtifactError as error:
            self.note("g")
            if "missing" not in str(error):
                self.blame(f"leasing {number}: {error}")
        except FileNotFoundError:
            if self.locks_hold:
                raise
            self.note("g")

    def compare(self, number: int, served: dict[str, bytes]) -> None:
        if any(served == files(number, text) for text in TEXTS):
            self.note("v")
        else:
            self.blame(f"WRONG BYTES of {number}")

    def collect(self) -> None:
        grace = self.chance.choice([0.0, 0.0, 0.3])
        age = self.chance.choice([0.0, 0.2])
        keep = tuple(key(n) for n in self.chance.sample(list(NUMBERS), 12))
        sweep = self.store.collect(Policy(max_age=age, grace=grace, keep=keep), dry_run=False)
        self.note("c" + "r" * len(sweep.removed))
        time.sleep(self.chance.uniform(0, 0.1))


def main() -> None:
    role, root, log, seed = sys.argv[1:]
    worker = Worker(Path(root), Path(log), int(seed))
    work: Callable[[], None] = {
        "publish": worker.publish,
        "read": worker.read,
        "collect": worker.collect,
    }[role]
    while True:
        try:
            work()
        except Exception:
            worker.blame(f"{role}: {traceback.format_exc()}")


if __name__ == "__main__":
    main()
