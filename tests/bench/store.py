"""The store's speed: `python tests/bench/store.py [--artifacts N] [--megabytes N] [--dvc PATH]`.

Ratios to what the same bytes cost without a store, in one run on one disk. With `--dvc`, the
path of its command, also beside `dvc add` on the same files.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from neuroncompile.store import Layer, Store
from neuroncompile.store.gc import Policy

ROOT = Path(__file__).parents[2]
FILES = 9  # and a manifest: ten blobs an artifact, and its spec


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--artifacts", type=int, default=10_000, help="in the large store")
    parser.add_argument("--megabytes", type=int, default=512, help="of the ingested file")
    parser.add_argument("--rounds", type=int, default=5, help="interleaved rounds")
    parser.add_argument("--dvc", help="dvc's command, to compare with")
    parser.add_argument("--directory", help="measure on this disk")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.directory) as scratch:
        ingest(Path(scratch), options.megabytes, options.rounds, options.dvc)
        publish(Path(scratch))
        many(Path(scratch), options.artifacts)


def row(what: str, value: str, note: str = "") -> None:
    print(f"{what:<52} {value:>12}  {note}", flush=True)


def spec(number: int) -> dict[str, Any]:
    return {
        "schema": 1,
        "kind": "compile",
        "backend": "cpu",
        "model": {"architectures": ["LlamaForCausalLM"], "number": number},
        "neuron": {"torch_dtype": "bfloat16", "batch_size": 1, "seq_len": 2048},
        "target": {"platform": "cpu", "isa": "x86-64-v3"},
    }


def seconds(action: Callable[[], object]) -> float:
    began = time.perf_counter()
    action()
    return time.perf_counter() - began


def ingest(scratch: Path, megabytes: int, rounds: int, dvc: str | None) -> None:
    """Publishing one large file against hashing, copying and syncing it by hand."""
    times: dict[str, list[float]] = {"by hand": [], "copied": [], "renamed": []}
    for number in range(rounds):
        source = scratch / "source"
        source.write_bytes(os.urandom(1 << 20) * megabytes)

        store = Store(scratch / "ingest")
        layer = [Layer("weights", path=source)]
        steps: list[tuple[str, Callable[[], object]]] = [
            ("by hand", partial(by_hand, source, scratch / "copy")),
            ("copied", partial(store.publish, "compile", spec(number), layer)),
        ]
        for how, step in steps if number % 2 else reversed(steps):
            os.sync()
            times[how].append(seconds(step))
        shutil.rmtree(scratch / "ingest")
        inside = store.scratch("bench") / "source"
        source.rename(inside)
        os.sync()
        layer = [Layer("weights", path=inside)]
        times["renamed"].append(seconds(partial(store.publish, "compile", spec(number), layer)))
        shutil.rmtree(scratch / "ingest")
        (scratch / "copy").unlink()
    by_hand_time = statistics.median(times["by hand"])
    rate = megabytes / by_hand_time
    row(f"sha256 + copy + fsync of {megabytes} MB", f"{rate:.0f} MB/s")
    for how in ("copied", "renamed"):
        taken = statistics.median(times[how])
        ratio = f"{by_hand_time / taken:.2f} of that speed"
        row(f"ingest, {how}", f"{megabytes / taken:.0f} MB/s", ratio)
    if dvc:
        row("dvc add of the same", f"{megabytes / dvc_add(scratch, megabytes, dvc):.0f} MB/s")


def by_hand(source: Path, target: Path) -> None:
    with source.open("rb") as file:
        hashlib.file_digest(file, "sha256")
    shutil.copyfile(source, target)
    with target.open("rb") as file:
        os.fsync(file.fileno())


def dvc_add(scratch: Path, megabytes: int, dvc: str) -> float:
    repository = scratch / "dvc"
    repository.mkdir()
    quiet = {"cwd": repository, "check": True, "capture_output": True}
    subprocess.run(["git", "init", "-q"], **quiet)  # type: ignore[call-overload]
    subprocess.run([dvc, "init", "-q"], **quiet)  # type: ignore[call-overload]
    start = min(seconds(lambda: subprocess.run([dvc, "--version"], **quiet)) for _ in range(3))  # type: ignore[call-overload]
    (repository / "source").write_bytes(os.urandom(1 << 20) * megabytes)
    return seconds(lambda: subprocess.run([dvc, "add", "-q", "source"], **quiet)) - start  # type: ignore[call-overload]


def publish(scratch: Path) -> None:
    store = Store(scratch / "small")
    store.publish("compile", spec(-1), [Layer("program.json", data=b"{}")])
    times = [
        seconds(lambda n=n: store.publish("compile", spec(n), [Layer("f", data=b"%d" % n)]))
        for n in range(100)
    ]
    row("publish of a small artifact", f"{statistics.median(times) * 1e3:.1f} ms", "with fsyncs")


def many(scratch: Path, count: int) -> None:
    """Lookup, listing and collection in a small and in a large store."""
    small, large = Store(scratch / "ten"), Store(scratch / "many")
    fill(small, 10)
    filling = seconds(lambda: fill(large, count))
    row(f"({count} artifacts, {count * (FILES + 2)} blobs written)", f"{filling:.0f} s", "no fsync")
    for store, number in ((small, 10), (large, count)):
        keys = [a.key for a, _ in zip(store.artifacts(), range(200), strict=False)]
        for key in keys:
            store.lookup("compile", key)
        times = [seconds(lambda k=k, s=store: s.lookup("compile", k)) for k in keys]
        row(f"lookup among {number}", f"{statistics.median(times) * 1e3:.2f} ms")
    for words in (["ls", "--json"], ["du"], ["gc", "--max-age", "30d"]):
        command(large, words)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    sweep = large.collect(Policy(max_bytes=0, grace=0), now=time.time())
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1000
    row("gc decides on all of them", f"{len(sweep.removed)}", f"{grown:.0f} MB more memory")
    removal = seconds(lambda: large.collect(Policy(max_bytes=0, grace=0), dry_run=False))
    row("gc removes all of them", f"{removal:.1f} s")


def fill(store: Store, count: int) -> None:
    fsync, os.fsync = os.fsync, lambda descriptor: None
    try:
        for number in range(count):
            files = [
                Layer(f"graphs/{n}/graph.so", data=b"%d/%d" % (number, n)) for n in range(FILES)
            ]
            store.publish("compile", spec(number), files, provenance={"seconds": number})
    finally:
        os.fsync = fsync


PEAK = (
    "import sys; from neuroncompile.cli import main; main(sys.argv[1:])\n"
    "print(open('/proc/self/status').read().split('VmHWM:')[1].split()[0], file=sys.stderr)"
)


def command(store: Store, words: list[str]) -> None:
    environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "NEURONCOMPILE_STORE": str(store.root),
    }
    times, peak = [], 0
    for _ in range(3):
        began = time.perf_counter()
        done = subprocess.run(
            [sys.executable, "-c", PEAK, "store", *words],
            env=environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            check=True,
        )
        times.append(time.perf_counter() - began)
        peak = int(done.stderr.split()[-1]) // 1000
    row(f"store {' '.join(words)}", f"{min(times):.2f} s", f"{peak} MB")


if __name__ == "__main__":
    main()
