"""A random history of one store, recorded call by call, with what it claimed in between.

    LD_PRELOAD=shim.so python -m tests.faults.recording ROOT LOG SEED

Every step is a process of its own, as in life. Some are killed on the way: what they left is
what the next ones meet. The log's marks are claims, each a JSON list:

    ["made", n]        artifact n has been published
    ["may go", n…]     from here on these may be missing
    ["spoilt", n]      a blob of artifact n is broken or set aside, until it is made again
    ["named", r, n]    ref r names artifact n
    ["may change", r]  from here on ref r may be anything it ever was, or nothing
"""

from __future__ import annotations

import json
import os
import random
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from neuroncompile.store import Store
from neuroncompile.store.gc import Policy
from tests.faults.driver import ANY, KILL, NONE, in_child, shim
from tests.faults.world import KIND, break_blob, key, publish, quick

NUMBERS = range(1, 7)
REFS = ("a", "team/b", "pins/c")


class History:
    """Random steps against one store."""

    def __init__(self, root: Path, log: Path, seed: int) -> None:
        self.root = root
        self.chance = random.Random(seed)
        self.log = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        self.made: dict[int, set[str]] = {}
        self.named: dict[str, int] = {}
        self.steps: list[str] = []
        shim.shim_log(self.log)
        shim.shim_arm(str(root).encode(), 0, NONE, 0, ANY)

    def say(self, *claim: Any) -> None:
        shim.shim_mark(json.dumps(claim).encode())

    def step(self) -> None:
        weights = {
            self.publish: 6,
            self.publish_killed: 4,
            self.adopt: 2,
            self.view: 3,
            self.name: 2,
            self.collect: 2,
            self.collect_killed: 1,
            self.remove: 1,
            self.spoil: 2,
            self.reject: 1,
        }
        self.chance.choices(list(weights), list(weights.values()))[0]()

    def run(self, what: str, work: Callable[[Store], Any], *, killed_at: int = 0) -> bool:
        """Do it in a process; False when that was killed."""

        def child() -> None:
            action = KILL if killed_at else NONE
            shim.shim_arm(str(self.root).encode(), killed_at, action, 0, ANY)
            work(Store(self.root))

        self.steps.append(what + (f" killed at {killed_at}" if killed_at else ""))
        answer, signal = in_child(child)
        if isinstance(answer, str) and "StoreError" not in answer.splitlines()[-1]:
            raise RuntimeError(f"{self.steps}: {answer}")
        return not signal and answer is None

    # ---- steps

    def publish(self) -> None:
        number, text = self.chance.choice(NUMBERS), self.chance.choice("xy")
        how = self.chance.choice([publish, quick])
        if self.run(f"publish {number}{text}", lambda store: void(how(store, number, text))):
            self.say("made", number)
            self.made.setdefault(number, set()).add(text)

    def publish_killed(self) -> None:
        number, text = self.chance.choice(NUMBERS), self.chance.choice("xy")
        self.made.setdefault(number, set())
        at = self.chance.randint(1, 75)
        work = lambda store: void(publish(store, number, text))  # noqa: E731
        if self.run(f"publish {number}{text}", work, killed_at=at) or (
            self.chance.random() < 0.7 and self.run("again", work)
        ):
            self.say("made", number)

    def adopt(self) -> None:
        number, text = self.chance.choice(NUMBERS), self.chance.choice("xy")
        other = Store(self.root.parent / "other")
        artifact = quick(other, number, text)
        manifest = other.manifest_of(artifact)

        def work(store: Store) -> None:
            wanted = store.missing(manifest)
            got: dict[str, Path | bytes] = {
                d.digest.removeprefix("sha256:"): other.blob_path(d.digest).read_bytes()
                for d in wanted
            }
            store.adopt(KIND, manifest, got)

        if self.run(f"adopt {number}{text}", work):
            self.say("made", number)

    def view(self) -> None:
        number = self.chance.choice(NUMBERS)

        def work(store: Store) -> None:
            if (artifact := store.lookup(KIND, key(number))) is not None:
                with store.lease(artifact):
                    pass

        self.run(f"view {number}", work)

    def name(self) -> None:
        name, number = self.chance.choice(REFS), self.chance.choice(NUMBERS)
        if Store(self.root).lookup(KIND, key(number), touch=False) is None:
            return
        self.say("may change", name)
        if self.run(f"name {name} {number}", lambda s: s.set_ref(name, s.find(key(number)))):
            self.say("named", name, number)
            self.named[name] = number

    def _collect(self, killed_at: int) -> None:
        keep = self.chance.sample(list(NUMBERS), 2)
        store = Store(self.root)
        named = set(store.refs().values())
        going = [
            n
            for n in NUMBERS
            if n not in keep
            and (
                (a := store.lookup(KIND, key(n), touch=False)) is None
                or a.manifest_digest not in named
            )
        ]
        self.say("may go", *going)
        policy = Policy(max_age=0, grace=0, keep=tuple(key(n) for n in keep))
        work = lambda store: void(store.collect(policy, dry_run=False))  # noqa: E731
        self.run(f"collect all but {keep}", work, killed_at=killed_at)

    def collect(self) -> None:
        self._collect(0)

    def collect_killed(self) -> None:
        self._collect(self.chance.randint(1, 40))

    def remove(self) -> None:
        number = self.chance.choice(NUMBERS)

        def work(store: Store) -> None:
            if (artifact := store.lookup(KIND, key(number))) is not None:
                store.remove(artifact)

        if number not in self.named.values():
            self.say("may go", number)
            self.run(f"remove {number}", work)

    def spoil(self) -> None:
        """Break a blob; a full verification sets it aside; a publish repairs it."""
        number = self.chance.choice(NUMBERS)
        if number in self.named.values():
            return

        def work(store: Store) -> None:
            artifact = store.lookup(KIND, key(number))
            if artifact is not None:
                own = [layer for layer in artifact.layers if layer.title != "common.json"]
                path = store.blob_path(self.chance.choice(own).digest)
                break_blob(path)
                with path.open("rb") as file:
                    os.fsync(file.fileno())
                store.lookup(KIND, key(number), verify="full")

        self.say("may go", number)
        self.say("spoilt", number)
        self.run(f"spoil {number}", work)
        self.publish_number(number)

    def publish_number(self, number: int) -> None:
        if self.run(f"repair {number}", lambda store: void(publish(store, number, "x"))):
            self.say("made", number)

    def reject(self) -> None:
        number = self.chance.choice(NUMBERS)
        self.run(
            f"reject {number}",
            lambda store: store.remember_failure(KIND, key(number), "no", log=b"log" * 50),
        )


def void(_: object) -> None:
    pass


def main() -> None:
    root = Path(sys.argv[1]).resolve() / "recorded" / "store"
    log, seed = Path(sys.argv[2]), int(sys.argv[3])
    shutil.rmtree(root.parent, ignore_errors=True)
    root.parent.mkdir(parents=True)
    history = History(root, log, seed)
    for _ in range(int(sys.argv[4])):
        history.step()
    sys.stdout.write(json.dumps({"steps": history.steps}))


if __name__ == "__main__":
    main()
