"""Logical cores for one program: a run of them that nobody uses, kept from our other processes.

neuron-ls shows who has a device open, which a program does only some time after it was started.
So who chooses cores first locks a file for each (`flock`, under XDG_RUNTIME_DIR or /tmp, one
directory a user); the locks end with the process, so nothing stale is ever in the way.

neuron-ls names processes by device and not by core. Which cores of it a process has is read from
its NEURON_RT_VISIBLE_CORES, where that can be read and counts as ours does (the same mount
namespace: a container numbers the cores it was given from 0); else it has all of the device's.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import stat
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from neuroncompile.errors import RunError
from neuroncompile.hardware.neuron_ls import Device
from neuroncompile.hardware.numa import cpu_list

__all__ = ["Reservation", "core_holders", "core_text", "reserve_cores", "visible_cores"]

PROC = Path("/proc")
PATIENCE = 10.0  # seconds for another process to choose; it takes milliseconds
_NOT_LOCKING = frozenset({errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP, errno.EINVAL})


class Reservation:
    """Cores that this process keeps until `release` or the end of the `with` block.

    Attributes:
        cores: ids of logical cores, side by side.
    """

    def __init__(self, cores: Sequence[int], locks: Sequence[int] = ()) -> None:
        self.cores, self._locks = tuple(cores), list(locks)

    @property
    def text(self) -> str:
        """As NEURON_RT_VISIBLE_CORES has it: "4-7"."""
        return core_text(self.cores)

    def release(self) -> None:
        """Give them up; again is harmless."""
        while self._locks:
            os.close(self._locks.pop())

    def __enter__(self) -> Reservation:
        return self

    def __exit__(self, *exc: object) -> None:
        self.release()


def reserve_cores(
    devices: Sequence[Device],
    count: int,
    *,
    environ: Mapping[str, str] | None = None,
    directory: Path | None = None,
    proc: Path = PROC,
) -> Reservation:
    """Take the first run of `count` free logical cores.

    A run starts at a multiple of its length, as the links between cores want it; only inside
    NEURON_RT_VISIBLE_CORES, which is the caller's own choice, anywhere.

    Args:
        environ: NEURON_RT_VISIBLE_CORES and NEURON_RT_NUM_CORES limit what may be taken.
        directory: where the locks are; default this user's.

    Raises:
        RunError: there are not that many, with how many are free and who has the others.
    """
    env = os.environ if environ is None else environ
    every = {core for device in devices for core in device.cores}
    allowed = visible_cores(env)
    usable = every if allowed is None else every.intersection(allowed)
    if allowed is None:
        _check_number(count, env)
    held = core_holders(devices, proc)
    place = _own_directory(directory, env)
    with _alone(place):
        mine: dict[int, int | None] = {}
        for core in sorted(usable.difference(held)):
            answer = _lock(place, core)
            if isinstance(answer, str):
                held[core] = answer
            else:
                mine[core] = answer
        run = _run(mine, count, anywhere=allowed is not None)
        kept = [fd for core in run if (fd := mine.pop(core)) is not None]
        for descriptor in mine.values():
            if descriptor is not None:
                os.close(descriptor)
        for descriptor in kept:
            _write(descriptor, run)
    if run:
        return Reservation(run, kept)
    raise _too_few(count, every, usable, sorted(mine), held, env)


def core_holders(devices: Sequence[Device], proc: Path = PROC) -> dict[int, str]:
    """Core → "pid 4242 (python serve.py)" of those that neuron-ls shows in use."""
    held: dict[int, str] = {}
    for device in devices:
        for process in device.processes:
            known = _cores_of(process.pid, proc)
            cores = sorted(known.intersection(device.cores)) if known else device.cores
            for core in cores or device.cores:
                held.setdefault(core, f"pid {process.pid} ({process.command})")
    return held


def visible_cores(environ: Mapping[str, str]) -> tuple[int, ...] | None:
    """Cores that NEURON_RT_VISIBLE_CORES names, "0-3,8"; None where it is not set.

    Raises:
        RunError: it is no list of cores.
    """
    text = environ.get("NEURON_RT_VISIBLE_CORES", "").strip()
    if not text:
        return None
    try:
        return tuple(sorted(set(cpu_list(text))))
    except ValueError:
        raise RunError(
            f"NEURON_RT_VISIBLE_CORES is {text!r}, which is no list of cores",
            hint='write it as "0-3" or "0,1", or unset it',
        ) from None


def _check_number(count: int, environ: Mapping[str, str]) -> None:
    """The other variable of the runtime's, which counts only without the first."""
    text = environ.get("NEURON_RT_NUM_CORES", "").strip()
    if text in ("", "0"):  # all of them
        return
    if not text.isdecimal():
        raise RunError(
            f"NEURON_RT_NUM_CORES is {text!r}, which is no number of cores",
            hint="write a number, or unset it",
        )
    if count > int(text):
        raise RunError(
            f"{count} cores are needed, and NEURON_RT_NUM_CORES allows {text}",
            hint="unset it, or build with a smaller --tp",
        )


def core_text(cores: Sequence[int]) -> str:
    """(0, 1, 2, 5) → "0-2,5"."""
    parts: list[list[int]] = []
    for core in sorted(cores):
        if parts and core == parts[-1][1] + 1:
            parts[-1][1] = core
        else:
            parts.append([core, core])
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in parts)


def _run(free: Mapping[int, object], count: int, *, anywhere: bool) -> tuple[int, ...]:
    """The first run that fits, empty if none does."""
    if count < 1:
        return ()
    starts = sorted(core for core in free if not core % count)
    starts += sorted(free) if anywhere else []
    for first in starts:
        run = range(first, first + count)
        if all(core in free for core in run):
            return tuple(run)
    return ()


def _too_few(
    count: int,
    every: set[int],
    usable: set[int],
    free: Sequence[int],
    held: Mapping[int, str],
    env: Mapping[str, str],
) -> RunError:
    holders: dict[str, list[int]] = {}
    for core, who in sorted(held.items()):
        if core in usable:
            holders.setdefault(who, []).append(core)
    told = [f"cores {core_text(cores)} by {who}" for who, cores in holders.items()]
    of = f"{len(usable)}" if usable == every else f"the {len(usable)} in NEURON_RT_VISIBLE_CORES"
    by = f"; held: {', '.join(told)}" if told else ""
    many = "1 core is needed" if count == 1 else f"{count} cores side by side are needed"
    if len(usable) < count:
        hint = f"run it on an instance with {count} or more cores, or build it with a smaller --tp"
        if len(every) >= count:
            hint = f"widen or unset NEURON_RT_VISIBLE_CORES={env['NEURON_RT_VISIBLE_CORES']}"
    elif len(free) >= count:
        hint = f"a run starts at a multiple of {count}: end what holds part of one"
    else:
        hint = "end those processes, wait for them, or build it with a smaller --tp"
    return RunError(
        f"{many}, and {len(free)} of {of} are free{by}",
        hint=hint,
        details={
            "needed": count,
            "cores": len(every),
            "free": list(free),
            "held": {str(core): held[core] for core in sorted(held)},
        },
    )


def _cores_of(pid: int, proc: Path) -> set[int]:
    """Cores that a process was given, counted as we count them; empty where that is not told."""
    try:
        if os.readlink(proc / str(pid) / "ns/mnt") != os.readlink(proc / "self/ns/mnt"):
            return set()
        data = (proc / str(pid) / "environ").read_bytes()
    except OSError:
        return set()
    name = b"NEURON_RT_VISIBLE_CORES="
    for entry in data.split(b"\0"):
        if entry.startswith(name):
            with contextlib.suppress(ValueError):
                return set(cpu_list(entry[len(name) :].decode("ascii", "replace")))
    return set()


# --- locks


def _own_directory(given: Path | None, environ: Mapping[str, str]) -> Path | None:
    """A private directory of ours; None where there can be none, and locks are done without."""
    runtime = environ.get("XDG_RUNTIME_DIR")
    places = [Path(runtime, "neuroncompile")] if runtime else []
    places.append(Path(f"/tmp/neuroncompile-{os.getuid()}"))
    for place in [given] if given is not None else places:
        try:
            place.mkdir(mode=0o700, exist_ok=True)
            about = place.lstat()
            if stat.S_ISDIR(about.st_mode) and about.st_uid == os.getuid():
                (place / "cores").mkdir(mode=0o700, exist_ok=True)
                return place / "cores"
        except OSError:
            continue
    return None


@contextlib.contextmanager
def _alone(place: Path | None) -> Iterator[None]:
    """While one chooses, others wait: two that lock cores in turn could both end with too few."""
    if place is None:
        yield
        return
    descriptor = _open(place / "choose")
    try:
        until = time.monotonic() + PATIENCE
        while descriptor is not None and not _try(descriptor) and time.monotonic() < until:
            time.sleep(0.005)
        yield
    finally:
        if descriptor is not None:
            os.close(descriptor)


def _lock(place: Path | None, core: int) -> int | str | None:
    """An open, locked descriptor; None where nothing can be locked; else who has the core."""
    descriptor = _open(place / str(core)) if place is not None else None
    if descriptor is None or _try(descriptor):
        return descriptor
    try:
        record = json.loads(os.pread(descriptor, 4096, 0))
        return f"pid {int(record['pid'])} (neuroncompile, on cores {record['cores']})"
    except (ValueError, KeyError, TypeError):
        return "another neuroncompile"
    finally:
        os.close(descriptor)


def _open(path: Path) -> int | None:
    try:
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except OSError:
        return None


def _try(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        return error.errno in _NOT_LOCKING
    return True


def _write(descriptor: int, cores: Sequence[int]) -> None:
    record = json.dumps({"pid": os.getpid(), "cores": core_text(cores)}).encode()
    with contextlib.suppress(OSError):
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, record, 0)
