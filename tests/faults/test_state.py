"""A Hypothesis state machine over a real store, against a model that is a dict.

What the machine knows: which artifacts are there with which bytes, which of them have a name, a
pin or a lease, which are broken. What it does not know is never asserted: whether an unused
artifact survives a collection is the collector's choice, which its dry run must announce.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections import Counter
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from neuroncompile.errors import StoreError
from neuroncompile.store import Artifact, Layer, Store
from neuroncompile.store.archive_read import import_tar
from neuroncompile.store.archive_write import export_tar
from neuroncompile.store.gc import Policy
from tests.faults.world import (
    KIND,
    break_blob,
    files,
    half_made,
    key,
    publish,
    quick,
    read,
    spec,
    temporary,
)

pytestmark = pytest.mark.slow

numbers = st.integers(1, 4)
texts = st.sampled_from(["x", "y"])
names = st.sampled_from(["a", "team/b", "c"])
ages = st.sampled_from([0.0, 0.0, 10.0, 1e6])
EXAMPLES = int(os.environ.get("NEURONCOMPILE_TEST_EXAMPLES", 80))
totals: Counter[str] = Counter()


class StoreMachine(RuleBasedStateMachine):
    """One store, used by processes that come and go."""

    @initialize()
    def start(self) -> None:
        shm = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
        self.place = Path(tempfile.mkdtemp(prefix="neuroncompile-", dir=shm))
        self.root = self.place / "store"
        self.warnings: list[str] = []
        self.here: dict[int, str] = {}  # number → variant
        self.refs: dict[str, int] = {}  # ref or pin → number
        self.broken: set[int] = set()
        self.leases: list[tuple[int, ExitStack, Path, Artifact]] = []
        self.process()

    def teardown(self) -> None:
        for _, stack, _, _ in getattr(self, "leases", ()):
            stack.close()
        if hasattr(self, "place"):
            shutil.rmtree(self.place)

    def process(self) -> None:
        self.store = Store(self.root, on_warning=self.warnings.append)

    def named(self) -> set[int]:
        return set(self.refs.values())

    def whole(self) -> set[int]:
        return set(self.here) - self.broken

    def one(self, data: st.DataObject) -> int:
        return data.draw(st.sampled_from(sorted(self.whole())))

    def leased(self) -> set[int]:
        return {number for number, *_ in self.leases}

    def lookup(self, number: int) -> Artifact | None:
        return self.store.lookup(KIND, key(number), touch=False)

    # ---- what people do

    @rule(wanted=st.sets(numbers, min_size=2), text=texts)
    def publish_several(self, wanted: set[int], text: str) -> None:
        for number in sorted(wanted):
            self.publish(number, text, quick)

    @rule(number=numbers, text=texts, way=st.sampled_from([publish, quick]))
    def publish(self, number: int, text: str, way: Any) -> None:
        totals["publishes"] += 1
        artifact = way(self.store, number, text)
        assert artifact.key == key(number)
        if number in self.here and number not in self.broken:
            text = self.here[number]  # the first writer has won
        elif number in self.broken:  # either way, by what the machine broke
            text = next(t for t in ("x", "y") if self.serves(artifact, number, t))
        self.here[number] = text
        self.broken.discard(number)
        self.repaired()

    def serves(self, artifact: Artifact, number: int, text: str) -> bool:
        return read(self.store.view(artifact), artifact) == files(number, text)

    def repaired(self) -> None:
        """A publish may put back a blob that other broken artifacts share."""
        self.broken = {n for n in self.broken if Store(self.root).lookup(KIND, key(n)) is None}

    @rule(number=numbers, verify=st.sampled_from(["stat", "full"]))
    def look_up(self, number: int, verify: Any) -> None:
        artifact = self.store.lookup(KIND, key(number), verify=verify)
        totals["lookups"] += 1
        assert (artifact is not None) == (number in self.here and number not in self.broken)
        if artifact is not None:
            assert self.serves(artifact, number, self.here[number])
            totals["hits"] += 1

    @precondition(lambda self: self.whole())
    @rule(data=st.data())
    def lease(self, data: st.DataObject) -> None:
        number = self.one(data)
        artifact = self.lookup(number)
        assert artifact is not None
        stack = ExitStack()
        view = stack.enter_context(self.store.lease(artifact))
        self.leases.append((number, stack, view, artifact))
        totals["leases"] += 1

    @precondition(lambda self: self.leases)
    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        place = data.draw(st.integers(0, len(self.leases) - 1))
        _, stack, _, _ = self.leases.pop(place)
        stack.close()

    @rule()
    def restart(self) -> None:
        """Another process: nothing in memory."""
        self.process()

    @rule(number=numbers, label=st.sampled_from(["work", "view"]))
    def die(self, number: int, label: str) -> None:
        """A process is killed: its unfinished files stay, and a lease that nobody holds."""
        tmp = self.root / "v1/tmp"
        tmp.mkdir(parents=True, exist_ok=True)
        dead = f"{os.uname().nodename}-{2**22 + number}-0123456789"
        (tmp / f"{dead}.{label}").mkdir(exist_ok=True)
        (tmp / f"{dead}.{label}/half").write_bytes(b"half")
        leases = self.root / "v1/leases"
        leases.mkdir(exist_ok=True)
        (leases / f"{dead}.{'0' * 64}").touch()
        self.process()
        totals["deaths"] += 1

    @precondition(lambda self: self.whole())
    @rule(name=names, data=st.data(), pin=st.booleans())
    def name(self, name: str, data: st.DataObject, pin: bool) -> None:
        number = self.one(data)
        artifact = self.lookup(number)
        assert artifact is not None
        if pin:
            self.store.pin(name, artifact)
            name = f"pins/{name}"
        else:
            self.store.set_ref(name, artifact)
        self.refs[name] = number

    @rule(name=names)
    def unpin(self, name: str) -> None:
        self.store.unpin(name)
        self.refs.pop(f"pins/{name}", None)

    @precondition(lambda self: self.whole())
    @rule(data=st.data())
    def remove(self, data: st.DataObject) -> None:
        number = self.one(data)
        artifact = self.lookup(number)
        assert artifact is not None
        if number in self.named() | self.leased():
            with pytest.raises(StoreError):
                self.store.remove(artifact)
            return
        self.store.remove(artifact)
        del self.here[number]
        totals["removals"] += 1

    @rule(
        age=st.none() | ages,
        size=st.none() | st.sampled_from([0, 3000, 10**9]),
        grace=st.sampled_from([0.0, 0.0, 10.0]),
        keep=st.sets(numbers, max_size=2),
        later=st.sampled_from([100.0, 0.0, 1e5, -3600.0]),
    )
    def collect(
        self, age: float | None, size: int | None, grace: float, keep: set[int], later: float
    ) -> None:
        """The dry run says exactly what the run then does; what is in use stays."""
        import time

        policy = Policy(max_age=age, max_bytes=size, grace=grace, keep=tuple(key(n) for n in keep))
        now = time.time() + later
        before = self.tree()
        said = self.store.collect(policy, dry_run=True, now=now)
        assert self.tree() == before, "a dry run has changed something"
        done = self.store.collect(policy, dry_run=False, now=now)
        assert replace(said, dry_run=False) == done
        gone = {path for path in before - self.tree() if path.startswith("v1/")}
        blobs = {path for path in gone if path.startswith("v1/blobs/")}
        assert len(blobs) == said.blobs
        pointers = {path for path in gone if path.startswith("v1/actions/")}
        assert pointers == {f"v1/actions/{r.kind}/{r.key}" for r in said.removed}
        removed = {number for number in self.here if key(number) in {r.key for r in said.removed}}
        whole = removed - self.broken
        assert not whole & (self.named() | self.leased() | keep)
        for number in removed:
            del self.here[number]
            self.broken.discard(number)
        totals["collections"] += 1
        totals["collected"] += len(removed)

    @precondition(lambda self: self.whole() - self.leased() - self.named())
    @rule(data=st.data())
    def corrupt(self, data: st.DataObject) -> None:
        """Bytes of one artifact's own file change; nobody has it open."""
        free = self.whole() - self.leased() - self.named()
        number = data.draw(st.sampled_from(sorted(free)))
        artifact = self.lookup(number)
        assert artifact is not None
        own = [layer for layer in artifact.layers if layer.title != "common.json"]
        layer = data.draw(st.sampled_from(own))
        break_blob(self.store.blob_path(layer.digest), size=data.draw(st.booleans()))
        self.broken.add(number)
        totals["corruptions"] += 1

    @rule()
    def repair(self) -> None:
        problems = self.store.check().problems
        assert bool(self.broken) >= bool([p for p in problems if p.what != "view"])
        self.store.check(repair=True)
        for number in self.broken:
            del self.here[number]
        self.broken.clear()
        assert self.store.check().problems == []

    @rule(number=numbers, text=texts, lie=st.booleans())
    def pull(self, number: int, text: str, lie: bool) -> None:
        """From another store, whose blobs may not be what they should."""
        other = Store(self.place / "other")
        layers = [Layer(title, data=data) for title, data in files(number, text).items()]
        artifact = other.publish(KIND, spec(number), layers)
        manifest = other.manifest_of(artifact)
        text = next(
            t for t in ("x", "y") if read(other.view(artifact), artifact) == files(number, t)
        )
        missing = [d.digest for d in self.store.missing(manifest)]
        got: dict[str, Path | bytes] = {
            digest.removeprefix("sha256:"): other.blob_path(digest).read_bytes()
            for digest in missing
        }
        if lie and got:
            victim = sorted(got)[0]
            got[victim] = b"something else"
            with pytest.raises(StoreError):
                self.store.adopt(KIND, manifest, got)
            totals["lies refused"] += 1
            return
        adopted = self.store.adopt(KIND, manifest, got)
        totals["pulls"] += 1
        if number not in self.here or number in self.broken:
            text = next(t for t in ("x", "y") if self.serves(adopted, number, t))
            self.here[number] = text
        self.repaired()

    @precondition(lambda self: self.whole() and not self.broken)
    @rule(back=st.booleans())
    def export_and_import(self, back: bool) -> None:
        """To a store of another path; all that was here hits there, and `back` adds nothing."""
        artifacts = [self.lookup(number) for number in sorted(self.whole())]
        assert None not in artifacts
        archive = self.place / "archive.tar"
        export_tar(self.store, [a for a in artifacts if a is not None], archive)
        copy = self.store if back else Store(self.place / "imported")
        with archive.open("rb") as file:
            taken = import_tar(copy, file)
        for number in self.whole():
            artifact = copy.lookup(KIND, key(number), verify="full")
            assert artifact is not None
            assert read(copy.view(artifact), artifact) == files(number, self.here[number])
        if back:
            assert taken.new_bytes == 0
        else:
            shutil.rmtree(self.place / "imported")
        totals["exports"] += 1

    @precondition(lambda self: self.here and not self.leases)
    @rule()
    def move(self) -> None:
        """All files get other inodes, on which the store's memory of them must not hang."""
        copy = self.place / "copy"
        shutil.copytree(self.root, copy, symlinks=True)
        shutil.rmtree(self.root)
        copy.rename(self.root)
        self.process()

    # ---- what must always hold

    def tree(self) -> set[str]:
        return {str(path.relative_to(self.root)) for path in self.root.rglob("*")}

    @invariant()
    def every_hit_has_the_bytes_of_the_model(self) -> None:
        if not hasattr(self, "here"):
            return
        totals["steps"] += 1
        fresh = Store(self.root, on_warning=self.warnings.append)
        for number in range(1, 5):
            artifact = fresh.lookup(KIND, key(number), touch=False)
            if number in self.here and number not in self.broken:
                assert artifact is not None, (number, self.warnings)
                assert read(fresh.view(artifact), artifact) == files(number, self.here[number])
                totals["reads verified"] += 1
            else:
                assert artifact is None

    @invariant()
    def what_is_leased_can_be_read(self) -> None:
        for number, _, view, artifact in getattr(self, "leases", ()):
            assert read(view, artifact) == files(number, self.here[number])

    @invariant()
    def names_lead_to_their_artifacts(self) -> None:
        if not hasattr(self, "refs"):
            return
        assert set(self.store.refs()) == set(self.refs)
        for name, number in self.refs.items():
            assert self.store.find(name).key == key(number)

    @invariant()
    def nothing_is_half(self) -> None:
        if hasattr(self, "root") and not self.broken:
            assert half_made(self.root / "v1") == []
            assert [t for t in temporary(self.root) if "-" not in t] == []


def test_store_against_a_dict(counts: Any) -> None:
    totals.clear()
    run_state_machine_as_test(
        StoreMachine,
        settings=settings(
            max_examples=EXAMPLES,
            phases=[Phase.generate, Phase.shrink],
            stateful_step_count=30,
            deadline=None,
            derandomize=EXAMPLES == 80,
            suppress_health_check=list(HealthCheck),
            print_blob=True,
        ),
    )
    counts(f"state machine, {EXAMPLES} runs", totals)
    assert all(totals[what] for what in ("hits", "leases", "collected", "corruptions", "pulls"))
