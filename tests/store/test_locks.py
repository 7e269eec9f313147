"""Locks between real processes: waiting, taking over, and file systems that do not lock."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from neuroncompile.errors import StoreError
from neuroncompile.store import locks

HOLD = """
import sys, time
from pathlib import Path
from neuroncompile.store import locks
{before}
claim = locks.wait_for(Path(sys.argv[1]), "compile-k", "compile k", None)
print("held", flush=True)
{after}
sys.stdin.read()
claim.release()
"""


@contextmanager
def holding(root: Path, *, before: str = "", after: str = "") -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD.format(before=before, after=after), str(root)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
        if process.stdin is not None:
            process.stdin.close()


def seconds_to_take_over(root: Path) -> float:
    began = time.monotonic()
    locks.wait_for(root, "compile-k", "compile k", None).release()
    return time.monotonic() - began


def test_second_sees_the_holder_and_waits(tmp_path: Path) -> None:
    with holding(tmp_path) as process:
        answer = locks.claim(tmp_path, "compile-k", "mine")
        assert isinstance(answer, locks.Holder)
        assert (answer.pid, answer.host) == (process.pid, os.uname().nodename)
        assert answer.what == "compile k"
        assert 0 <= time.time() - answer.started < 60
        calls: list[tuple[int, float]] = []

        def on_wait(holder: locks.Holder, waited: float) -> None:
            calls.append((holder.pid, waited))
            if len(calls) == 3:
                assert process.stdin is not None
                process.stdin.close()

        locks.wait_for(tmp_path, "compile-k", "mine", on_wait).release()
        assert [pid for pid, _ in calls[:3]] == [process.pid] * 3
        assert calls[0][1] < calls[2][1]


def test_other_keys_are_free(tmp_path: Path) -> None:
    with holding(tmp_path):
        other = locks.claim(tmp_path, "compile-other", "mine")
        assert isinstance(other, locks.Claim)
        other.release()


def test_killed_holder_is_taken_over_within_a_second(tmp_path: Path) -> None:
    with holding(tmp_path) as process:
        process.send_signal(signal.SIGKILL)
        assert seconds_to_take_over(tmp_path) < 1


def test_forked_child_of_a_dead_holder_does_not_keep_the_lock(tmp_path: Path) -> None:
    fork = "import os\nif os.fork() == 0:\n    time.sleep(20); os._exit(0)"
    with holding(tmp_path, after=f"{fork}\nopen(sys.argv[1] + '/ready', 'w').close()") as process:
        while not (tmp_path / "ready").exists():
            time.sleep(0.01)
        process.send_signal(signal.SIGKILL)
        process.wait()
        descriptor = os.open(tmp_path / "locks" / "compile-k", os.O_RDWR)
        with pytest.raises(BlockingIOError):  # the child does hold it
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.close(descriptor)
        assert seconds_to_take_over(tmp_path) < 1


NO_OP = "import fcntl; fcntl.flock = lambda *a: None"
NO_FLOCK = """
import fcntl, errno
def flock(*a): raise OSError(errno.ENOSYS, "no flock")
fcntl.flock = flock
"""


@pytest.mark.parametrize("before", [NO_OP, NO_FLOCK], ids=["no-op", "ENOSYS"])
def test_without_flock_the_record_makes_others_wait(
    tmp_path: Path, before: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def flock(*_: object) -> None:
        if before is NO_FLOCK:
            raise OSError(errno.ENOSYS, "no flock")

    monkeypatch.setattr(fcntl, "flock", flock)
    with holding(tmp_path, before=before) as process:
        answer = locks.claim(tmp_path, "compile-k", "mine")
        assert isinstance(answer, locks.Holder)
        assert answer.pid == process.pid
        process.kill()
        process.wait()
        assert seconds_to_take_over(tmp_path) < 1


def test_lock_files_stay_and_records_go(tmp_path: Path) -> None:
    with locks.wait_for(tmp_path, "compile-k", "mine", None):
        record = json.loads((tmp_path / "locks" / "compile-k").read_bytes())
        assert record["pid"] == os.getpid()
    assert (tmp_path / "locks" / "compile-k").read_bytes() == b""


@pytest.mark.parametrize(
    "record",
    [
        b"\xff",
        b"{}",
        b"[]",
        b"null",
        json.dumps({"pid": 1, "host": "elsewhere", "started": 1, "what": "x"}).encode(),
        json.dumps({"pid": 1, "host": os.uname().nodename, "started": 1, "what": "x"}).encode(),
    ],
)
def test_stale_records_do_not_block(tmp_path: Path, record: bytes) -> None:
    (tmp_path / "locks").mkdir()
    (tmp_path / "locks" / "compile-k").write_bytes(record)
    assert seconds_to_take_over(tmp_path) < 1


def test_reused_pid_does_not_block(tmp_path: Path) -> None:
    with holding(tmp_path) as process:
        record = json.loads((tmp_path / "locks" / "compile-k").read_bytes())
        process.kill()
    record["pid"] = os.getppid()  # alive, but began at another tick
    (tmp_path / "locks" / "compile-k").write_text(json.dumps(record))
    assert seconds_to_take_over(tmp_path) < 1


def test_release_twice(tmp_path: Path) -> None:
    claim = locks.claim(tmp_path, "compile-k", "mine")
    assert isinstance(claim, locks.Claim)
    claim.release()
    claim.release()


def test_unusable_directory_is_a_store_error(tmp_path: Path) -> None:
    (tmp_path / "locks").write_text("in the way")
    with pytest.raises(StoreError) as caught:
        locks.claim(tmp_path, "compile-k", "mine")
    assert caught.value.exit_code == 7
    assert "--store" in (caught.value.hint or "")


def test_shared_lock_admits_readers_and_not_a_collector(tmp_path: Path) -> None:
    with locks.shared(tmp_path), locks.shared(tmp_path):
        descriptor = os.open(tmp_path / "locks" / "gc", os.O_RDWR)
        with pytest.raises(BlockingIOError):
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    os.close(descriptor)
