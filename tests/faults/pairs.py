"""One operation stopped at each of its calls while another runs from beginning to end.

    LD_PRELOAD=shim.so python -m tests.faults.pairs ROOT FIRST SECOND

If the second waits for a lock of the first, the first goes on. Prints one JSON object.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
import time
import traceback
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from neuroncompile.errors import StoreError
from neuroncompile.store import Store
from neuroncompile.store.gc import Policy
from tests.faults import operations as ops
from tests.faults.driver import ANY, STOP, shim
from tests.faults.operations import Act
from tests.faults.world import KIND, break_blob, files, key, publish, quick, read, survey


@dataclass(frozen=True)
class Actor:
    """An operation, and what its success promises as long as nobody takes it back."""

    act: Act
    promises: int | None = None
    takes: int | None = None
    may_fail: bool = False


def lease_one(root: Path) -> None:
    """Read before and after a call at which we may be stopped."""
    store = Store(root)
    artifact = store.lookup(KIND, key(1), touch=False)
    if artifact is None:
        return
    with store.lease(artifact) as view:
        for _ in range(2):
            assert read(view, artifact) == files(1, "x"), "a leased artifact has changed"
            os.rmdir(store.scratch("pause"))


def publish_again(root: Path) -> None:
    publish(Store(root), 3)


def pin_one(root: Path) -> None:
    store = Store(root)
    if (artifact := store.lookup(KIND, key(1), touch=False)) is None:
        raise StoreError("it has gone")
    store.pin("it", artifact)


def collect(root: Path) -> None:
    """Everything that is not named, leased or new."""
    Store(root).collect(Policy(max_age=3600, grace=0), dry_run=False)


def remove_one(root: Path) -> None:
    store = Store(root)
    if (artifact := store.lookup(KIND, key(1), touch=False)) is None:
        raise StoreError("it has gone")
    store.remove(artifact)


def damage_three(root: Path) -> None:
    """Old bytes change, and a reader that looks at all of them notices."""
    store = Store(root)
    if (artifact := store.lookup(KIND, key(3))) is not None:
        try:
            break_blob(store.blob_path(artifact.layers[1].digest))
        except FileNotFoundError:
            return
        store.lookup(KIND, key(3), verify="full")


def publish_other(root: Path) -> None:
    publish(Store(root), 3, "other")


def scribble(root: Path) -> None:
    """A compiler that has not finished writes to its output, which is being published."""
    for path in root.glob("v1/tmp/*.work/a.so"):
        path.chmod(0o644)
        with path.open("r+b") as file:
            file.write(b"?")
        path.chmod(0o444)


def view_one(root: Path) -> None:
    store = Store(root)
    if (artifact := store.lookup(KIND, key(1), touch=False)) is None:
        raise StoreError("it has gone")
    read(store.view(artifact), artifact)


ACTORS = {
    "publish": Actor(ops.publish_three, promises=3),
    "publish-again": Actor(publish_again, promises=3),
    "publish-other": Actor(publish_other, promises=3),
    "quick": Actor(lambda root: void(quick(Store(root), 3)), promises=3),
    "adopt": Actor(ops.adopt_three, promises=3),
    "lease": Actor(lease_one, may_fail=True),
    "view": Actor(view_one, may_fail=True),
    "look-up": Actor(lambda root: void(Store(root).lookup(KIND, key(3), verify="full"))),
    "pin": Actor(pin_one, promises=1, may_fail=True),
    "collect": Actor(collect),
    "remove": Actor(remove_one, takes=1, may_fail=True),
    "publish-scribbled": Actor(ops.publish_three, may_fail=True),
    "scribble": Actor(scribble),
    "damage": Actor(damage_three, takes=3),
    "repair": Actor(lambda root: void(Store(root).check(repair=True))),
}


def void(_: object) -> None:
    pass


def prepare(root: Path, number: int, *, leftover: bool) -> None:
    """Artifacts 1 and 2 are old; a third is in another store, or with `number` 3 here as well.

    With `leftover`, blobs of a third are here without a pointer, and too new to be touched.
    """
    ops.elsewhere(root)
    if number == 3:
        publish(Store(root), 3)
        ops.age(root, 86400)
    if leftover:
        publish(Store(root), 3)
        (root / "v1/actions" / KIND / key(3)).unlink()


def start(root: Path, actor: Actor, n: int = 0) -> tuple[int, int]:
    """A process that acts and is stopped at its n-th call; its id, and a pipe with the outcome."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid:
        os.close(writer)
        return pid, reader
    os.close(reader)
    shim.shim_arm(str(root).encode(), n, STOP, 0, ANY)
    try:
        actor.act(root)
        outcome = "done"
    except StoreError as error:
        outcome = f"refused: {error}" if actor.may_fail else "!" + traceback.format_exc()
    except BaseException:
        outcome = "!" + traceback.format_exc()
    if outcome == "done" and n > shim.shim_count():
        outcome = "end"
    shim.shim_disarm()
    os.write(writer, outcome.encode()[-4000:])
    os._exit(0)


def finish(pid: int, pipe: int) -> str:
    with os.fdopen(pipe) as file:
        outcome = file.read()
    os.waitpid(pid, 0)
    return outcome


def waits(pid: int, root: Path) -> bool:
    """Whether a process waits for a lock."""
    locks = Path("/proc/locks").read_text()
    blocked = any("->" in line and f" {pid} " in line for line in locks.splitlines())
    return blocked or (root / "v1/locks/gc.want").exists()


class Pair:
    """Two operations, the second at every point of the first."""

    def __init__(self, parent: Path, first: str, second: str) -> None:
        self.parent, self.root = parent, parent / "store"
        self.names = f"{first} with {second} at call"
        self.first, self.second = ACTORS[first], ACTORS[second]
        self.counts: Counter[str] = Counter()
        self.wrong: list[str] = []

    def all_points(self) -> None:
        n = 1
        while self.point(n):
            n += 1
        self.counts["calls"] = n - 1

    def point(self, n: int) -> bool:
        root = self.root
        shutil.rmtree(self.parent, ignore_errors=True)
        self.parent.mkdir()
        acts = (self.first.act, self.second.act)
        prepare(root, 3 if damage_three in acts else 0, leftover=publish_again in acts)
        one, pipe = start(root, self.first, n)
        _, status = os.waitpid(one, os.WUNTRACED)
        if not os.WIFSTOPPED(status):
            with os.fdopen(pipe) as file:
                outcome = file.read()
            if outcome.startswith("!"):
                self.wrong.append(f"{self.names} {n}: alone: {outcome}")
            return outcome != "end"
        two, other = start(root, self.second)
        while not self._exited(two):
            if waits(two, root):
                self.counts["waited"] += 1
                break
            time.sleep(0.001)
        os.kill(one, signal.SIGCONT)
        outcomes = [finish(one, pipe), finish(two, other)]
        self.counts["interleavings"] += 1
        for outcome in outcomes:
            if outcome.startswith("!"):
                self.wrong.append(f"{self.names} {n}: {outcome}")
        self._survey(n, outcomes)
        return True

    @staticmethod
    def _exited(pid: int) -> bool:
        return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None

    def _survey(self, n: int, outcomes: list[str]) -> None:
        promised = {
            actor.promises
            for actor, outcome in zip((self.first, self.second), outcomes, strict=True)
            if outcome == "done" and actor.promises
        }
        taken = {
            actor.takes
            for actor, outcome in zip((self.first, self.second), outcomes, strict=True)
            if outcome == "done" and actor.takes
        }
        texts = ("x", "other", "x?")
        kept = dict.fromkeys({2, *promised} - taken, texts)
        maybe = {number: texts for number in (1, 3) if number not in kept}
        damaged = {self.first.act, self.second.act} & {damage_three, scribble}
        for problem in survey(self.root, kept=kept, maybe=maybe, damaged=bool(damaged)):
            self.wrong.append(f"{self.names} {n}: {problem} {outcomes}")
        if promised & taken and not damaged:
            self.wrong.append(f"{self.names} {n}: both succeeded")


def main() -> None:
    parent, first, second = sys.argv[1:]
    pair = Pair(Path(parent).resolve() / "pair", first, second)
    pair.all_points()
    sys.stdout.write(json.dumps({"counts": pair.counts, "wrong": pair.wrong}))


if __name__ == "__main__":
    main()
