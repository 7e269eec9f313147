"""The store's protocols, each as preparation, act, and what must hold once the act succeeded.

An act must be repeatable: that is what a user does after a crash.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from errno import EPERM
from pathlib import Path

from neuroncompile.store import Store
from neuroncompile.store.gc import Policy
from tests.faults import world
from tests.faults.world import KIND, Texts, break_blob, key, publish, quick

Act = Callable[[Path], None]


@dataclass(frozen=True)
class Operation:
    """One protocol.

    Attributes:
        kept: what must be served before, during and after.
        made: what the act makes: perhaps there during it, certainly after it.
        gone: what the act takes away: perhaps there during it, certainly not after it.
        damaged: the preparation breaks something that the act repairs or sets aside.
        link_error: what every `link` fails with; `no_symlinks`: and every `symlink`.
    """

    name: str
    prepare: Act
    act: Act
    kept: Mapping[int, Texts] = field(default_factory=dict)
    made: Mapping[int, Texts] = field(default_factory=dict)
    gone: Mapping[int, Texts] = field(default_factory=dict)
    after: Act | None = None
    damaged: bool = False
    link_error: int = 0
    no_symlinks: bool = False


def two(root: Path) -> None:
    """Artifacts 1 and 2, the second with a view and a name; all its dates are a day old."""
    store = Store(root)
    publish(store, 1, provenance=True)
    artifact = publish(store, 2)
    store.view(artifact)
    store.set_ref("two", artifact)
    age(root, 86400)


def age(root: Path, seconds: float) -> None:
    """Date every blob and pointer back, as if published then; what was hashed is forgotten."""
    then = time.time() - seconds
    for path in [*(root / "v1/blobs/sha256").iterdir(), *(root / "v1/actions").glob("*/*")]:
        os.utime(path, (then, then))


def nothing(root: Path) -> None:
    pass


def publish_three(root: Path) -> None:
    publish(Store(root), 3, provenance=True)


def rejected_before(root: Path) -> None:
    two(root)
    Store(root).remember_failure(KIND, key(3), "no", log=b"a log")


def other_three(root: Path) -> None:
    two(root)
    publish(Store(root), 3, "other")


def broken_blob(root: Path) -> None:
    two(root)
    artifact = publish(Store(root), 3)
    break_blob(Store(root).blob_path(artifact.layers[1].digest), size=True)


def broken_bytes(root: Path) -> None:
    two(root)
    artifact = publish(Store(root), 3)
    Store(root).view(artifact)
    break_blob(Store(root).blob_path(artifact.layers[1].digest))


def broken_pointer(root: Path) -> None:
    two(root)
    publish(Store(root), 3)
    (root / "v1/actions" / KIND / key(3)).write_bytes(b"")


def broken_view(root: Path) -> None:
    two(root)
    store = Store(root)
    artifact = store.find("two")
    (store.view(artifact) / "graphs/a.so").unlink()


def look_up_fully(root: Path) -> None:
    assert Store(root).lookup(KIND, key(3), verify="full") is None


def view_one(root: Path) -> None:
    store = Store(root)
    store.view(store.find(key(1)))


def view_two(root: Path) -> None:
    store = Store(root)
    store.view(store.find(key(2)))


def lease_one(root: Path) -> None:
    store = Store(root)
    with store.lease(store.find(key(1))) as view:
        assert (view / "graphs/a.so").read_bytes() == world.files(1, "x")["graphs/a.so"]


def name_one(root: Path) -> None:
    store = Store(root)
    store.set_ref("team/best", store.find(key(1)))


def rename_two(root: Path) -> None:
    store = Store(root)
    store.set_ref("two", store.find(key(1)))


def reject(root: Path) -> None:
    Store(root).remember_failure(KIND, key(4), "not supported", log=b"words of the compiler")


def rejected(root: Path) -> None:
    failure = Store(root).failure(KIND, key(4))
    assert failure is not None
    assert failure.reason == "not supported"


def forget(root: Path) -> None:
    Store(root).forget_failure(KIND, key(3))


def fly(root: Path) -> None:
    store = Store(root)
    with store.single_flight(KIND, key(3)):
        if store.lookup(KIND, key(3)) is None:
            quick(store, 3)


def garbage(root: Path) -> None:
    """Beside 1 and 2: an old artifact with a view, a blob without a name, and a dead lease."""
    two(root)
    store = Store(root)
    store.view(publish(store, 3, provenance=True))
    store.remember_failure(KIND, key(4), "no", log=b"log of a rejection")
    store.forget_failure(KIND, key(4))
    (root / "v1/tmp/nowhere-1-0123456789").write_bytes(b"unfinished")
    (root / "v1/leases").mkdir()
    (root / "v1/leases/nowhere-1-0123456789").write_bytes(b"{}")
    age(root, 86400)


OLD = Policy(max_age=3600, grace=0, keep=(key(1),))


def collect(root: Path) -> None:
    Store(root).collect(OLD, dry_run=False)


def remove_three(root: Path) -> None:
    store = Store(root)
    if (artifact := store.lookup(KIND, key(3))) is not None:
        store.remove(artifact)


def pin_one(root: Path) -> None:
    store = Store(root)
    store.pin("release/1", store.find(key(1)))


def prepared_pin(root: Path) -> None:
    two(root)
    pin_one(root)


def unpin_one(root: Path) -> None:
    Store(root).unpin("release/1")


def unpinned(root: Path) -> None:
    assert "pins/release/1" not in Store(root).refs()


def elsewhere(root: Path) -> None:
    """Beside 1 and 2: artifact 3 in another store."""
    two(root)
    publish(Store(root.parent / "other"), 3, provenance=True)


def adopt_three(root: Path) -> None:
    """As a tier does: blobs into a scratch directory, then adopt."""
    store, other = Store(root), Store(root.parent / "other")
    artifact = other.find(key(3))
    manifest = other.manifest_of(artifact)
    scratch = store.scratch("work")
    try:
        got: dict[str, Path | bytes] = {}
        for descriptor in store.missing(manifest):
            name = descriptor.digest.removeprefix("sha256:")
            data = other.blob_path(descriptor.digest).read_bytes()
            got[name] = data
            if not descriptor.title.endswith("b.so"):
                got[name] = scratch / name
                try:
                    (scratch / name).write_bytes(data)
                except OSError as error:
                    raise world.WorkError from error
        store.adopt(KIND, manifest, got, provenance=other.provenance_bytes(artifact))
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def repair(root: Path) -> None:
    Store(root).check(repair=True)


def named(name: str, number: int) -> Act:
    def assertion(root: Path) -> None:
        assert Store(root).find(name).key == key(number)

    return assertion


X = ("x",)
BOTH = {1: X, 2: X}

OPERATIONS = {
    operation.name: operation
    for operation in [
        Operation("publish-first", nothing, publish_three, made={3: X}),
        Operation("publish", rejected_before, publish_three, kept=BOTH, made={3: X}),
        Operation("publish-second", other_three, publish_three, kept={**BOTH, 3: ("other",)}),
        Operation(
            "publish-over-broken-blob",
            broken_blob,
            publish_three,
            kept=BOTH,
            made={3: X},
            damaged=True,
        ),
        Operation(
            "publish-over-broken-pointer",
            broken_pointer,
            publish_three,
            kept=BOTH,
            made={3: X},
            damaged=True,
        ),
        Operation(
            "publish-by-rename", two, publish_three, kept=BOTH, made={3: X}, link_error=EPERM
        ),
        Operation(
            "lookup-quarantines",
            broken_bytes,
            look_up_fully,
            kept=BOTH,
            gone={3: X},
            damaged=True,
        ),
        Operation("view", two, view_one, kept=BOTH),
        Operation("view-by-symlink", two, view_one, kept=BOTH, link_error=EPERM),
        Operation("view-by-copy", two, view_one, kept=BOTH, link_error=EPERM, no_symlinks=True),
        Operation("view-again", broken_view, view_two, kept=BOTH, damaged=True),
        Operation("lease", two, lease_one, kept=BOTH),
        Operation("name", two, name_one, kept=BOTH, after=named("team/best", 1)),
        Operation("name-again", two, rename_two, kept=BOTH, after=named("two", 1)),
        Operation("reject", two, reject, kept=BOTH, after=rejected),
        Operation("forget", rejected_before, forget, kept=BOTH),
        Operation("adopt", elsewhere, adopt_three, kept=BOTH, made={3: X}),
        Operation("collect", garbage, collect, kept=BOTH, gone={3: X}),
        Operation("remove", garbage, remove_three, kept=BOTH, gone={3: X}),
        Operation("pin", two, pin_one, kept=BOTH, after=named("pins/release/1", 1)),
        Operation("unpin", prepared_pin, unpin_one, kept=BOTH, after=unpinned),
        Operation("repair", broken_bytes, repair, kept=BOTH, gone={3: X}, damaged=True),
        Operation("single-flight", two, fly, kept=BOTH, made={3: X}),
    ]
}
