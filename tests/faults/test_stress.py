"""Eight processes that publish, read, lease, collect and are killed; and many that want one key."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from neuroncompile.store import Store
from neuroncompile.store.gc import Policy
from tests.faults import world
from tests.faults.conftest import ROOT
from tests.faults.worker import NUMBERS, TEXTS
from tests.faults.world import survey

pytestmark = pytest.mark.slow

ROLES = ("publish", "publish", "publish", "read", "read", "read", "collect", "collect")
EVENTS = {
    "p": "publishes",
    "h": "hits",
    "m": "misses",
    "v": "reads verified",
    "g": "gone before the lease",
    "c": "collections",
    "r": "artifacts collected",
}


class Crowd:
    """The processes, of which one is killed and replaced now and then."""

    def __init__(self, root: Path, log: Path, seed: int, env: dict[str, str]) -> None:
        self.root, self.log, self.env = root, log, env
        self.chance = random.Random(seed)
        self.kills = 0
        self.members = [(role, self.start(role)) for role in ROLES]

    def start(self, role: str) -> subprocess.Popen[bytes]:
        seed = str(self.chance.randrange(10**9))
        command = [sys.executable, "-m", "tests.faults.worker", role]
        return subprocess.Popen([*command, str(self.root), str(self.log), seed], env=self.env)

    def kill_one(self) -> None:
        place = self.chance.randrange(len(self.members))
        role, process = self.members[place]
        process.send_signal(signal.SIGKILL)
        assert process.wait() == -signal.SIGKILL
        self.kills += 1
        self.members[place] = (role, self.start(role))

    def end(self) -> None:
        for _, process in self.members:
            process.kill()
            process.wait()


def stress(root: Path, seconds: float, seed: int, **env: str) -> Counter[str]:
    """Counts; asserts that nothing was ever wrong."""
    log = root.with_name("log")
    log.touch()
    everything = {**os.environ, "PYTHONPATH": str(ROOT), **env}
    crowd = Crowd(root, log, seed, everything)
    began = time.monotonic()
    try:
        while time.monotonic() - began < seconds:
            time.sleep(crowd.chance.uniform(0, 0.8))
            crowd.kill_one()
    finally:
        crowd.end()
    bad = log.with_suffix(".bad")
    assert not bad.exists(), f"seed {seed}: {bad.read_text()[:6000]}"
    numbers = Counter({EVENTS[letter]: n for letter, n in Counter(log.read_text()).items()})
    numbers["kills"] = crowd.kills
    assert numbers["publishes"] > 50
    assert numbers["reads verified"] > 50
    assert numbers["artifacts collected"] > 10
    return numbers


def settle(root: Path, *, locks_hold: bool) -> None:
    """What is left is whole, and the next collection leaves no garbage."""
    store = Store(root)
    problems = store.check(repair=True).problems
    if locks_hold:
        assert problems == []
    assert survey(root, maybe=dict.fromkeys(NUMBERS, TEXTS)) == []
    store.collect(Policy(max_age=0, grace=0), dry_run=False)
    assert world.temporary(root) == []
    assert os.listdir(root / "v1/blobs/sha256") == []
    assert os.listdir(root / "v1/leases") == []
    assert os.listdir(root / "v1/views") == []


def test_a_minute_of_everything(tmp_path: Path, counts: Any) -> None:
    root = tmp_path / "store"
    numbers = stress(root, 60, seed=1)
    counts("stress, 60 s", numbers)
    settle(root, locks_hold=True)


VARIANTS = {
    "flock does nothing": {"FAULT_FLOCK": "0"},
    "flock fails with ENOSYS": {"FAULT_FLOCK": "38"},
    "link fails with EPERM": {"FAULT_LINK": "1"},
    "link fails with EXDEV": {"FAULT_LINK": "18"},
    "link and rename are slow": {"FAULT_SLOW_US": "5000"},
}


@pytest.mark.parametrize("name", VARIANTS)
def test_everything_where(name: str, memory: Path, shim: Path, counts: Any) -> None:
    root = memory / "store"
    env = {"LD_PRELOAD": str(shim), "FAULT_ROOT": str(memory), **VARIANTS[name]}
    numbers = stress(root, 5, seed=2, **env)
    counts(f"stress, 5 s, {name}", numbers)
    settle(root, locks_hold="FAULT_FLOCK" not in env)


@pytest.mark.parametrize("flock", ["works", "does nothing", "fails with ENOSYS"])
def test_one_of_64_builds(flock: str, drive: Any, counts: Any) -> None:
    env = {
        "works": {},
        "does nothing": {"FAULT_FLOCK": "0"},
        "fails with ENOSYS": {"FAULT_FLOCK": "38"},
    }
    told = drive("flight", "64", **env[flock])
    counts(f"64 processes for one key, flock {flock}", told)
    assert told == {"builds": 1, "failed": 0}
