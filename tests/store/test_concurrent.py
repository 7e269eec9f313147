"""Many processes at once, and processes killed at any moment."""

from __future__ import annotations

import collections
import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture
def kit(disk_kit: Any) -> Any:
    """These show something only on a real disk."""
    return disk_kit


KEYS = 25
WRITERS = 4

WRITE = """
import json, os, random, sys
from pathlib import Path
{before}
from neuroncompile.store import Layer, Store
root, count, seed = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
warnings = []
store = Store(root, on_warning=warnings.append)
print("ready", flush=True)
sys.stdin.readline()
won = {{}}
random.seed(seed)
for number in range(count):
    layers = [
        Layer("own", data=b"%d %d" % (seed, number) * 50),
        Layer("common", data=b"common %d" % number * 50),
        Layer("all", data=b"all" * 50),
    ]
    artifact = store.publish("graph", {{"kind": "graph", "bucket": number}}, layers)
    own = next(d for d in artifact.layers if d.title == "own")
    won[artifact.key] = [artifact.manifest_digest, store.blob_path(own.digest).read_text()]
print(json.dumps([won, warnings]))
"""


def writers(root: Path, count: int, *, before: str = "") -> list[subprocess.Popen[str]]:
    return [
        subprocess.Popen(
            [sys.executable, "-c", WRITE.format(before=before), str(root), str(count), str(seed)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for seed in range(WRITERS)
    ]


def go(processes: list[subprocess.Popen[str]]) -> None:
    """Start them at the same instant."""
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()


def pointers(kit: Any) -> int:
    return len(list(kit.v1.glob("actions/graph/*")))


NO_FLOCK = "import fcntl; fcntl.flock = lambda *a: None"


@pytest.mark.parametrize("before", ["", NO_FLOCK], ids=["flock", "flock does nothing"])
def test_each_key_has_exactly_one_winner(kit: Any, before: str) -> None:
    processes = writers(kit.root, KEYS, before=before)
    go(processes)
    answers = [json.loads(process.communicate()[0]) for process in processes]
    assert all(process.returncode == 0 for process in processes)
    for won, warnings in answers:
        assert won == answers[0][0], "writers disagree about a winner"
        assert warnings == []
    assert len(answers[0][0]) == KEYS
    assert kit.assert_whole(kit.fresh()) == KEYS
    assert list((kit.v1 / "tmp").iterdir()) == []
    winners = collections.Counter(text.split()[0] for _, text in answers[0][0].values())
    assert len(winners) > 1, "the writers never met; the test shows nothing"


def test_killed_while_publishing_leaves_only_whole_artifacts(kit: Any) -> None:
    chance = random.Random(7)
    rounds = 4
    for _ in range(rounds):
        processes = writers(kit.root, 10_000)
        before = pointers(kit)
        go(processes)
        while pointers(kit) == before:
            time.sleep(0.005)
        time.sleep(chance.uniform(0, 0.1))
        for process in processes:
            time.sleep(chance.uniform(0, 0.02))
            process.send_signal(signal.SIGKILL)
        for process in processes:
            process.communicate()
            assert process.returncode == -signal.SIGKILL
    count = kit.assert_whole(kit.fresh())
    assert count > 0
    assert kit.warnings == []
    again = writers(kit.root, 20)  # and goes on from there
    go(again)
    assert [json.loads(p.communicate()[0])[1] for p in again] == [[]] * WRITERS
    assert kit.assert_whole(kit.fresh()) >= count


REPAIR = """
import sys
from pathlib import Path
from neuroncompile.errors import StoreError
from neuroncompile.store import Layer, Store
store = Store(Path(sys.argv[1]))
print("ready", flush=True)
sys.stdin.readline()
for _ in range(15):
    try:
        store.publish("graph", {"kind": "graph"}, [Layer("a", data=b"a" * 1000)])
    except StoreError as error:
        assert "read back" in str(error)  # broken again faster than it was written
"""


def test_damage_among_writers_never_leaves_a_broken_artifact(kit: Any) -> None:
    """Setting aside and repairing race with each other; the last publish must stand."""
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", REPAIR, str(kit.root)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(3)
    ]
    go(processes)
    chance = random.Random(3)
    while any(process.poll() is None for process in processes):
        time.sleep(0.01)
        blobs = list(kit.v1.glob("blobs/sha256/*")) + list(kit.v1.glob("actions/graph/*"))
        if blobs:
            victim = chance.choice(blobs)
            try:
                os.truncate(victim, victim.stat().st_size // 2)
            except FileNotFoundError:
                continue
    for process in processes:
        process.communicate()
        assert process.returncode == 0
    from neuroncompile.store import Layer

    kit.store.publish("graph", {"kind": "graph"}, [Layer("a", data=b"a" * 1000)])
    artifact = next(iter(kit.fresh().artifacts()))
    kit.warnings.clear()
    assert kit.fresh().lookup("graph", artifact.key, verify="full") == artifact
    assert kit.warnings == []


FLIGHT = """
import sys, time
from pathlib import Path
from neuroncompile.store import Layer, Store
store = Store(Path(sys.argv[1]))
waits = []
with store.single_flight("graph", sys.argv[2], lambda h, s: waits.append((h.pid, h.what))):
    artifact = store.lookup("graph", sys.argv[2])
    if artifact is None:
        print("building", flush=True)
        time.sleep(float(sys.argv[3]))
        store.publish("graph", {"schema": 1, "kind": "graph", "backend": "cpu", "bucket": 0},
                      [Layer("a", data=b"a")])
        print("built", flush=True)
    else:
        print("found", waits[0][0], waits[0][1], flush=True)
"""


def flight(kit: Any, seconds: float) -> subprocess.Popen[str]:
    arguments = [sys.executable, "-c", FLIGHT, str(kit.root), kit.key(), str(seconds)]
    return subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True)


def test_second_waits_and_finds(kit: Any) -> None:
    first = flight(kit, 1.0)
    assert first.stdout is not None
    assert first.stdout.readline() == "building\n"
    assert kit.store.try_claim("graph", kit.key()) is None
    second = flight(kit, 0)
    assert second.communicate()[0] == f"found {first.pid} graph {kit.key()}\n"
    assert first.communicate()[0] == "built\n"
    claim = kit.store.try_claim("graph", kit.key())
    assert claim is not None
    claim.release()


def test_killed_builder_is_taken_over_within_a_second(kit: Any) -> None:
    first = flight(kit, 60)
    assert first.stdout is not None
    assert first.stdout.readline() == "building\n"
    second = flight(kit, 0)
    time.sleep(0.5)
    assert second.poll() is None
    first.kill()
    killed = time.monotonic()
    assert second.stdout is not None
    assert second.stdout.readline() == "building\n"
    assert time.monotonic() - killed < 1
    assert second.communicate()[0] == "built\n"
    first.communicate()
    assert kit.assert_whole(kit.fresh()) == 1
