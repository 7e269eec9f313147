"""The collector: what goes, what stays and why, and that a dry run says exactly that."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from neuroncompile.errors import CorruptArtifactError, StoreError
from neuroncompile.store import Artifact, Layer
from neuroncompile.store.gc import GRACE_SECONDS, Policy, Sweep

LATER = time.time() + 3 * GRACE_SECONDS


def collect(kit: Any, policy: Policy, now: float | None = LATER) -> Sweep:
    """A dry run and then the real one, which must do what the first said."""
    before = kit.tree(kit.v1)
    said = kit.store.collect(policy, now=now)
    assert kit.tree(kit.v1) - before <= {"locks", "locks/gc"}
    done = kit.store.collect(policy, dry_run=False, now=now)
    assert said.dry_run
    assert not done.dry_run
    done.dry_run = True
    assert said == done
    sweep: Sweep = done
    return sweep


def blobs(kit: Any) -> int:
    return sum(p.stat().st_size for p in (kit.v1 / "blobs" / "sha256").iterdir())


def use(kit: Any, artifact: Artifact, when: float) -> None:
    os.utime(kit.v1 / "actions" / artifact.kind / artifact.key, (when, when))


def graph(kit: Any, number: int, data: bytes) -> Artifact:
    artifact: Artifact = kit.store.publish("graph", kit.spec(number), [Layer("g.so", data=data)])
    return artifact


def test_an_empty_directory_is_an_empty_store(kit: Any) -> None:
    assert kit.store.collect(Policy(max_bytes=0), dry_run=False) == Sweep(dry_run=False)
    assert not kit.root.exists()


def test_without_limits_every_artifact_stays(kit: Any) -> None:
    kit.publish(1)
    sweep = collect(kit, Policy())
    assert (sweep.removed, sweep.blobs, sweep.freed) == ([], 0, 0)
    assert sweep.kept["fits"].artifacts == 1
    assert sweep.bytes_before == sweep.bytes_after == blobs(kit)
    assert kit.assert_whole(kit.fresh()) == 1


def test_age_counts_from_the_last_use(kit: Any) -> None:
    old, new = kit.publish(1, "old"), kit.publish(2, "new")
    use(kit, old, LATER - 30 * 86400)
    use(kit, new, LATER - 8 * 86400)
    sweep = collect(kit, Policy(max_age=10 * 86400))
    assert [(r.key, r.reason) for r in sweep.removed] == [(old.key, "age")]
    assert kit.fresh().lookup("graph", old.key) is None
    assert kit.fresh().lookup("graph", new.key) == new
    assert sweep.freed == sweep.bytes_before - sweep.bytes_after
    assert blobs(kit) == sweep.bytes_after


def test_size_takes_the_least_recently_used_first(kit: Any) -> None:
    made = [graph(kit, n, bytes([n]) * 1000) for n in range(5)]
    for n, artifact in enumerate(made):
        use(kit, artifact, LATER - (100 + [3, 0, 4, 1, 2][n]) * 86400)
    sweep = collect(kit, Policy(max_bytes=blobs(kit) - 2000))
    assert [r.key for r in sweep.removed] == [made[2].key, made[0].key]
    assert all(r.reason == "size" and r.freed > 1000 for r in sweep.removed)
    assert sum(r.freed for r in sweep.removed) == sweep.freed
    assert sweep.excess == 0
    assert kit.assert_whole(kit.fresh()) == 3


def test_shared_blobs_are_freed_with_their_last_artifact(kit: Any) -> None:
    shared = os.urandom(5000)
    first = graph(kit, 1, shared)
    second = kit.store.publish(
        "compile",
        {"schema": 1, "kind": "compile"},
        [Layer("program.json", data=b"{}"), Layer("graphs/a/graph.so", data=shared)],
    )
    use(kit, first, LATER - 90 * 86400)
    use(kit, second, LATER - 80 * 86400)
    assert collect(kit, Policy(max_age=85 * 86400)).kept["shared"].artifacts == 1
    sweep = collect(kit, Policy(max_age=50 * 86400))
    assert {r.key for r in sweep.removed} == {first.key, second.key}
    assert [r.freed > 5000 for r in sweep.removed] == [False, True]
    assert blobs(kit) == 0


def test_names_pins_leases_and_keep_rules_hold(kit: Any) -> None:
    named, pinned, leased, kept, last, gone = (kit.publish(n, str(n)) for n in range(6))
    use(kit, last, time.time() + 60)
    kit.store.set_ref("models/llama", named)
    kit.store.pin("production", pinned)
    policy = Policy(max_bytes=0, grace=0, keep=(kept.key,), keep_last=1)
    with kit.store.lease(leased) as view:
        sweep = collect(kit, policy)
        assert (view / "program.json").read_bytes() == b"{}"
    assert [r.key for r in sweep.removed] == [gone.key]
    assert {why: k.artifacts for why, k in sweep.kept.items()} == {
        "ref": 1,
        "pin": 1,
        "lease": 1,
        "keep": 2,
    }
    assert sweep.excess == sweep.bytes_after == blobs(kit)
    kit.store.unpin("production")
    after = collect(kit, Policy(max_bytes=0, grace=0))
    assert {r.key for r in after.removed} == {pinned.key, leased.key, kept.key, last.key}
    assert kit.assert_whole(kit.fresh()) == 1


def test_recent_use_and_fresh_blobs_have_their_grace(kit: Any) -> None:
    kit.publish(1)
    (kit.v1 / "blobs" / "sha256" / ("0" * 64)).write_bytes(b"being published")
    now = time.time()
    sweep = collect(kit, Policy(max_bytes=0), now)
    assert sweep.kept["recent"].artifacts == 1
    assert (sweep.removed, sweep.blobs, sweep.waiting) == ([], 0, 15)
    sweep = collect(kit, Policy(max_bytes=0), now + GRACE_SECONDS + 60)
    assert sweep.kept["recent"].artifacts == 1, "a use is recorded only hourly"
    assert sweep.blobs == 1
    sweep = collect(kit, Policy(max_bytes=0), now + GRACE_SECONDS + 3700)
    assert [r.reason for r in sweep.removed] == ["size"]
    assert blobs(kit) == 0


@pytest.mark.parametrize("shift", [-3600, 3600])
def test_a_clock_an_hour_off_removes_nothing_in_use(kit: Any, shift: int) -> None:
    kit.publish(1)
    sweep = collect(kit, Policy(max_bytes=0, max_age=60), time.time() + shift)
    assert sweep.removed == []
    assert sweep.freed == 0


def test_a_date_of_1970_is_an_age_and_one_from_the_future_is_not(kit: Any) -> None:
    ancient, future = kit.publish(1, "a"), kit.publish(2, "b")
    use(kit, ancient, 0)
    use(kit, future, time.time() + 86400 * 365)
    sweep = collect(kit, Policy(max_age=86400), time.time())
    assert [r.key for r in sweep.removed] == [ancient.key]


def test_broken_pointers_go_and_their_blobs_with_them(kit: Any) -> None:
    broken, fine = kit.publish(1, "broken"), kit.publish(2, "fine")
    kit.blob(broken, 1).unlink()
    (kit.v1 / "actions" / "graph" / ("f" * 64)).write_bytes(b"\0\0")
    sweep = collect(kit, Policy())
    assert {(r.key, r.reason) for r in sweep.removed} == {
        (broken.key, "broken"),
        ("f" * 64, "broken"),
    }
    assert kit.fresh().lookup("graph", fine.key) == fine
    assert kit.assert_whole(kit.fresh()) == 1


def test_leftovers_of_the_dead_go_and_of_the_living_stay(kit: Any) -> None:
    artifact = kit.publish(1)
    kit.store.view(artifact)
    mine = kit.store.scratch("compile")
    dead = subprocess.run(
        [sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True, text=True
    ).stdout.strip()
    host = os.uname().nodename
    theirs = kit.v1 / "tmp" / f"{host}-{dead}-0123456789.compile"
    (theirs / "deep").mkdir(parents=True)
    (kit.v1 / "views" / ("a" * 64)).mkdir()
    sweep = collect(kit, Policy())
    assert mine.is_dir()
    assert not theirs.exists()
    assert not (kit.v1 / "views" / ("a" * 64)).exists()
    assert sweep.leftovers == 2


def test_a_lease_dies_with_its_process(kit: Any) -> None:
    artifact = kit.publish(1)
    program = (
        "import sys, os; from pathlib import Path; from neuroncompile.store import Store\n"
        "store = Store(Path(sys.argv[1]))\n"
        "lease = store.lease(store.lookup('graph', sys.argv[2])); lease.__enter__()\n"
        "print('leased', flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program, str(kit.root), artifact.key],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "leased\n"
        assert collect(kit, Policy(max_bytes=0, grace=0)).kept["lease"].artifacts == 1
        with pytest.raises(StoreError, match="in use"):
            kit.store.remove(artifact)
        holder.kill()
    assert [r.key for r in collect(kit, Policy(max_bytes=0, grace=0)).removed] == [artifact.key]
    assert list((kit.v1 / "leases").iterdir()) == []


def test_what_is_collected_while_it_is_held_by_nobody_is_a_clear_error(kit: Any) -> None:
    artifact = kit.publish(1)
    collect(kit, Policy(max_bytes=0, grace=0))
    with pytest.raises(CorruptArtifactError, match="missing"), kit.store.lease(artifact):
        pass


def test_remove_frees_at_once_what_nothing_else_has(kit: Any) -> None:
    one, two = kit.publish(1, "same"), kit.publish(2, "same")
    kit.store.view(one)
    kit.store.set_ref("llama", two)
    freed = kit.store.remove(one)
    assert 0 < freed < 1500, "manifest and spec only: the files are shared"
    assert kit.fresh().lookup("graph", one.key) is None
    with pytest.raises(StoreError, match="name llama") as caught:
        kit.store.remove(two)
    assert "--force" in str(caught.value.hint)
    assert kit.fresh().lookup("graph", two.key) == two
    kit.store.remove(two, force=True)
    assert kit.store.refs() == {}
    assert blobs(kit) == 0
    assert kit.store.remove(two) == 0


def test_an_interrupted_collection_leaves_garbage_only(
    kit: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    for n in range(4):
        kit.store.view(kit.publish(n, str(n)))
    calls = 0
    unlink = os.unlink

    def dies(path: Any, **more: Any) -> None:
        nonlocal calls
        calls += 1
        if calls > allowed:
            raise KeyboardInterrupt
        unlink(path, **more)

    interruptions = 0
    for allowed in itertools.count():  # noqa: B007 - read by `dies`
        calls = 0
        try:
            with monkeypatch.context() as patch:
                patch.setattr(os, "unlink", dies)
                kit.store.collect(Policy(max_bytes=0, grace=0), dry_run=False)
        except KeyboardInterrupt:
            interruptions += 1
            kit.assert_whole(kit.fresh())
        else:
            break
    assert interruptions > 5
    assert blobs(kit) == 0


def test_the_log_of_a_remembered_rejection_stays_as_long_as_it_counts(kit: Any) -> None:
    kit.store.remember_failure("graph", kit.key(1), "NCC_EXAMPLE", log=b"the compiler's words")
    log = kit.store.blob_path(kit.store.failure("graph", kit.key(1)).log)
    collect(kit, Policy(max_bytes=0, grace=0), time.time())
    assert log.read_bytes() == b"the compiler's words"
    kit.store.forget_failure("graph", kit.key(1))
    collect(kit, Policy(max_bytes=0, grace=0), time.time())
    assert not log.exists()
