"""Cores of a device: chosen side by side, kept from other processes, holders named."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from neuroncompile.errors import RunError
from neuroncompile.hardware.cores import (
    Reservation,
    core_holders,
    core_text,
    reserve_cores,
    visible_cores,
)
from neuroncompile.hardware.neuron_ls import Device, parse_devices
from tests.conftest import ROOT
from tests.hardware.test_neuron_ls import HELD, ONE_CHIP, trn2

HOLDER = """
import json, sys
from pathlib import Path
from neuroncompile.hardware.cores import reserve_cores
from neuroncompile.hardware.neuron_ls import parse_devices
devices = parse_devices(Path(sys.argv[1]).read_text())
kept = reserve_cores(devices, int(sys.argv[2]), environ={}, directory=Path(sys.argv[3]))
print(kept.text, flush=True)
sys.stdin.read()
"""


def machine(**first: Any) -> tuple[Device, ...]:
    return parse_devices(json.dumps(trn2(**first)))


class Bench:
    """Reservations in a directory of the test's own, by this process and by others."""

    def __init__(self, place: Path) -> None:
        self.place = place
        (place / "devices.json").write_text(json.dumps(trn2()))
        (place / "proc").mkdir()
        self.others: list[subprocess.Popen[str]] = []

    def take(
        self, count: int, devices: tuple[Device, ...] | None = None, **environ: str
    ) -> Reservation:
        return reserve_cores(
            machine() if devices is None else devices,
            count,
            environ=environ,
            directory=self.place,
            proc=self.place / "proc",
        )

    def other(self, count: int) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [
                sys.executable, "-c", HOLDER,
                str(self.place / "devices.json"), str(count), str(self.place),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )  # fmt: skip
        self.others.append(process)
        return process


def told(process: subprocess.Popen[str]) -> str:
    """The cores that it says it has taken."""
    assert process.stdout is not None
    return process.stdout.readline().strip()


@pytest.fixture
def bench(tmp_path: Path) -> Any:
    bench = Bench(tmp_path)
    yield bench
    for process in bench.others:
        process.kill()
        process.communicate()


@pytest.mark.parametrize("count", [1, 2, 4, 8, 64])
def test_cores_side_by_side(bench: Bench, count: int) -> None:
    with bench.take(count) as taken:
        assert taken.cores == tuple(range(count))
        assert taken.text == ("0" if count == 1 else f"0-{count - 1}")


def test_a_run_starts_at_a_multiple_of_its_length(bench: Bench) -> None:
    busy = machine(neuron_processes=HELD)
    for count, text in ((4, "4-7"), (8, "8-15"), (32, "32-63")):
        with bench.take(count, busy) as taken:
            assert taken.text == text


def test_two_of_one_process_and_after_release(bench: Bench) -> None:
    first, second = bench.take(4), bench.take(4)
    assert (first.text, second.text) == ("0-3", "4-7")
    first.release()
    first.release()
    assert bench.take(2).text == "0-1"


def test_another_process_keeps_its_cores_until_it_dies(bench: Bench) -> None:
    process = bench.other(32)
    assert told(process) == "0-31"
    assert bench.take(32).text == "32-63"
    with pytest.raises(RunError) as caught:
        bench.take(64)
    who = f"cores 0-31 by pid {process.pid} (neuroncompile, on cores 0-31)"
    assert who in str(caught.value)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert bench.take(32).text == "0-31"


def test_many_at_once_take_different_ones(bench: Bench) -> None:
    processes = [bench.other(8) for _ in range(8)]
    assert sorted(map(told, processes)) == sorted(f"{8 * n}-{8 * n + 7}" for n in range(8))
    with pytest.raises(RunError, match="0 of 64 are free"):
        bench.take(1)


def test_too_few_are_free_and_who_has_them(bench: Bench) -> None:
    with pytest.raises(RunError) as caught:
        bench.take(64, machine(neuron_processes=HELD))
    message = str(caught.value)
    assert "64 cores side by side are needed, and 60 of 64 are free" in message
    assert "cores 0-3 by pid 4242 (python serve.py)" in message
    assert caught.value.exit_code == 10
    assert caught.value.details["free"] == list(range(4, 64))
    assert caught.value.details["held"]["0"] == "pid 4242 (python serve.py)"


def test_an_instance_that_is_too_small(bench: Bench) -> None:
    small = parse_devices(json.dumps(ONE_CHIP))
    with pytest.raises(RunError, match="4 cores side by side are needed, and 2 of 2") as caught:
        bench.take(4, small)
    assert "an instance with 4 or more cores" in str(caught.value.hint)
    with pytest.raises(RunError, match=r"1 core is needed, and 0 of 0 are free$"):
        bench.take(1, ())


def test_enough_are_free_and_none_side_by_side(bench: Bench) -> None:
    rows = [{**row, "neuron_processes": HELD if row["neuron_device"] % 2 else []} for row in trn2()]
    with pytest.raises(RunError, match="8 cores side by side are needed, and 32 of 64") as caught:
        bench.take(8, parse_devices(json.dumps(rows)))
    assert "starts at a multiple of 8" in str(caught.value.hint)


def test_nothing_is_kept_of_a_failed_choice(bench: Bench) -> None:
    with pytest.raises(RunError):
        bench.take(64, machine(neuron_processes=HELD))
    assert bench.take(64).text == "0-63"


# --- what the caller allows


def test_visible_cores_limit_the_choice(bench: Bench) -> None:
    assert bench.take(2, NEURON_RT_VISIBLE_CORES="6-9").text == "6-7"
    assert bench.take(2, NEURON_RT_VISIBLE_CORES="6-9").text == "8-9"
    with pytest.raises(RunError, match="0 of the 4 in NEURON_RT_VISIBLE_CORES are free"):
        bench.take(1, NEURON_RT_VISIBLE_CORES="6-9")
    with pytest.raises(RunError) as caught:
        bench.take(8, NEURON_RT_VISIBLE_CORES="0-3")
    assert "NEURON_RT_VISIBLE_CORES=0-3" in str(caught.value.hint)


def test_visible_cores_need_not_start_at_a_multiple(bench: Bench) -> None:
    assert bench.take(4, NEURON_RT_VISIBLE_CORES="2-5").text == "2-5"


def test_visible_cores_that_are_none() -> None:
    assert visible_cores({}) is None
    assert visible_cores({"NEURON_RT_VISIBLE_CORES": " "}) is None
    assert visible_cores({"NEURON_RT_VISIBLE_CORES": "4,0-2,1"}) == (0, 1, 2, 4)
    with pytest.raises(RunError, match="no list of cores"):
        visible_cores({"NEURON_RT_VISIBLE_CORES": "all"})


def test_number_of_cores(bench: Bench) -> None:
    assert bench.take(4, NEURON_RT_NUM_CORES="4").text == "0-3"
    assert bench.take(4, NEURON_RT_NUM_CORES="0").text == "4-7"
    assert bench.take(4, NEURON_RT_NUM_CORES="2", NEURON_RT_VISIBLE_CORES="8-15").text == "8-11"
    with pytest.raises(RunError, match="NEURON_RT_NUM_CORES allows 2"):
        bench.take(4, NEURON_RT_NUM_CORES="2")
    with pytest.raises(RunError, match="no number of cores"):
        bench.take(4, NEURON_RT_NUM_CORES="two")


@pytest.mark.parametrize(
    ("cores", "text"), [((), ""), ((3,), "3"), ((0, 1, 2), "0-2"), ((5, 0, 1, 7, 8), "0-1,5,7-8")]
)
def test_text_of_cores(cores: tuple[int, ...], text: str) -> None:
    assert core_text(cores) == text


# --- which cores of a device a process has


def process(bench: Bench, pid: int, environ: str, namespace: str = "mnt:[1]") -> None:
    for name, where in (("self", "mnt:[1]"), (str(pid), namespace)):
        place = bench.place / "proc" / name / "ns"
        place.mkdir(parents=True, exist_ok=True)
        (place / "mnt").unlink(missing_ok=True)
        (place / "mnt").symlink_to(where)
    (bench.place / "proc" / str(pid) / "environ").write_bytes(environ.encode())


def test_a_process_has_the_cores_it_was_given(bench: Bench) -> None:
    process(bench, 4242, "HOME=/\0NEURON_RT_VISIBLE_CORES=0-1\0")
    devices = machine(neuron_processes=HELD)
    assert sorted(core_holders(devices, bench.place / "proc")) == [0, 1]
    assert bench.take(2, devices).text == "2-3"


@pytest.mark.parametrize(
    "environ", ["HOME=/\0", "NEURON_RT_VISIBLE_CORES=all\0", "NEURON_RT_VISIBLE_CORES=60-63\0"]
)
def test_else_it_has_the_whole_device(bench: Bench, environ: str) -> None:
    process(bench, 4242, environ)
    assert sorted(core_holders(machine(neuron_processes=HELD), bench.place / "proc")) == [
        0,
        1,
        2,
        3,
    ]


def test_a_container_counts_its_cores_from_nought(bench: Bench) -> None:
    process(bench, 4242, "NEURON_RT_VISIBLE_CORES=0\0", namespace="mnt:[2]")
    assert len(core_holders(machine(neuron_processes=HELD), bench.place / "proc")) == 4


def test_two_processes_on_one_device(bench: Bench) -> None:
    process(bench, 1, "NEURON_RT_VISIBLE_CORES=0\0")
    process(bench, 2, "NEURON_RT_VISIBLE_CORES=2-3\0")
    two = [{"pid": 1, "command": "a"}, {"pid": 2, "command": "b"}]
    held = core_holders(machine(neuron_processes=two), bench.place / "proc")
    assert held == {0: "pid 1 (a)", 2: "pid 2 (b)", 3: "pid 2 (b)"}


# --- where locks are


def test_without_a_directory_cores_are_chosen_all_the_same(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    taken = reserve_cores(machine(), 4, environ={}, directory=tmp_path / "file")
    assert taken.text == "0-3"
    taken.release()


def test_the_directory_is_private_and_follows_no_link(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    environ = {"XDG_RUNTIME_DIR": str(tmp_path)}
    with reserve_cores(machine(), 4, environ=environ):
        place = tmp_path / "neuroncompile"
        assert place.stat().st_mode & 0o777 == 0o700
        assert json.loads((place / "cores" / "0").read_text())["cores"] == "0-3"
    other = tmp_path / "other"
    other.mkdir()
    place.rename(tmp_path / "old")
    place.symlink_to(other)
    with reserve_cores(machine(), 4, environ=environ, directory=place) as taken:
        assert taken.text == "0-3"
    assert not list(other.iterdir())


def test_a_record_that_is_broken_names_nobody(bench: Bench) -> None:
    with bench.take(64):
        for path in (bench.place / "cores").iterdir():
            path.write_text("{")
        with pytest.raises(RunError, match="cores 0-63 by another neuroncompile"):
            bench.take(1)
