"""Pull against s5cmd and boto3: `python tests/bench/tiers.py [--rounds N] [--megabytes N]`.

All three fetch the same objects from the same server on this machine, interleaved, into the
same file system, and only ours hashes what it gets.
The server is 80 lines of sendfile, since moto would be what is measured; it and the clients
share the cores. Compare the ratios. Needs the `dev` extra.

Times are those of the transfer: our `pull` into an empty store, boto3's `download_file` of each
object with a client at hand, and the whole of an `s5cmd run` of all objects, whose start takes
some 20 ms.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))
BUCKET = "bench"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=7, help="interleaved rounds")
    parser.add_argument("--megabytes", type=int, default=200, help="size of an artifact")
    parser.add_argument("--directory", help="where files go  [default: a tmpfs, if there is one]")
    parser.add_argument("--serve", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        serve(Path(options.serve))
        return
    shm = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(dir=options.directory or shm) as scratch:
        os.mkdir(f"{scratch}/objects")
        command = [sys.executable, __file__, "--serve", f"{scratch}/objects"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
            try:
                assert server.stdout is not None
                os.environ["AWS_ENDPOINT_URL"] = server.stdout.readline().strip()
                os.environ |= {"AWS_ACCESS_KEY_ID": "x", "AWS_SECRET_ACCESS_KEY": "x"}
                os.environ |= {"AWS_REGION": "us-east-1", "AWS_DEFAULT_REGION": "us-east-1"}
                for files in (1, 8):
                    compare(Path(scratch), files, options.megabytes, options.rounds)
            finally:
                server.terminate()


def compare(scratch: Path, files: int, megabytes: int, rounds: int) -> None:
    """One artifact of so many files, by each of the three in turn."""
    from neuroncompile.store import Layer, Store
    from neuroncompile.tiers import open_tier, push

    size = megabytes * 1_000_000 // files
    store = Store(scratch / f"source{files}")
    layers = [Layer(f"shard{i}.bin", data=os.urandom(size)) for i in range(files)]
    artifact = store.publish("pack", {"schema": 1, "kind": "pack", "files": files}, layers)
    push(store, open_tier(f"file://{scratch}/objects/{BUCKET}", create=True), artifact)
    keys = [f"v1/blobs/sha256/{d.digest.removeprefix('sha256:')}" for d in artifact.layers]
    shutil.rmtree(store.root)
    clients: dict[str, Callable[[Path], float]] = {
        "pull": lambda out: ours(out, artifact.key),
        "s5cmd": lambda out: s5cmd(out, keys),
        "boto3": lambda out: boto3(out, keys),
    }
    taken: dict[str, list[float]] = {name: [] for name in clients}
    for number in range(rounds + 1):
        for name, fetch in clients.items():
            out = scratch / "out"
            out.mkdir()
            seconds = fetch(out)
            assert total(out) >= size * files, name
            shutil.rmtree(out)
            if number:  # the first warms up
                taken[name].append(seconds)
    medians = {name: statistics.median(values) for name, values in taken.items()}
    print(f"{megabytes} MB in {files} file{'s' * (files > 1)}, median of {rounds}")
    for name, seconds in medians.items():
        ratio = seconds / medians["pull"]
        note = "" if name == "pull" else f"  pull is {ratio:.2f} times as fast"
        print(f"  {name:<8}{megabytes / seconds:>8.0f} MB/s{seconds:>8.3f} s{note}", flush=True)


def total(directory: Path) -> int:
    seen = {(s.st_dev, s.st_ino): s.st_size for p in directory.rglob("*") if (s := p.stat())}
    return sum(seen.values())


def ours(out: Path, key: str) -> float:
    from neuroncompile.store import Store
    from neuroncompile.tiers import open_tier, pull

    with open_tier(f"s3://{BUCKET}") as tier:
        began = time.perf_counter()
        assert pull(Store(out), tier, "pack", key) is not None
        return time.perf_counter() - began


def s5cmd(out: Path, keys: list[str]) -> float:
    script = "".join(f"cp s3://{BUCKET}/{key} {out}/{key[-64:]}\n" for key in keys)
    program = shutil.which("s5cmd") or str(Path(sys.executable).parent / "s5cmd")
    began = time.perf_counter()
    subprocess.run(
        [program, "--endpoint-url", os.environ["AWS_ENDPOINT_URL"], "run"],
        input=script.encode(),
        check=True,
        capture_output=True,
    )
    return time.perf_counter() - began


def boto3(out: Path, keys: list[str]) -> float:
    from boto3 import client

    s3 = client("s3")
    began = time.perf_counter()
    for key in keys:
        s3.download_file(BUCKET, key, str(out / key[-64:]))
    return time.perf_counter() - began


# ---- a server that is not what is measured


def serve(root: Path) -> None:
    """GET and HEAD of the files below `root`, with ranges; its URL on stdout."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_HEAD(self) -> None:
            self._answer(body=False)

        def do_GET(self) -> None:
            self._answer(body=True)

        def log_message(self, *args: object) -> None:
            pass

        def _answer(self, *, body: bool) -> None:
            try:
                file = open(root / self.path.partition("?")[0].lstrip("/"), "rb")  # noqa: SIM115
            except OSError:
                data = b"<Error><Code>NoSuchKey</Code></Error>" if body else b""
                self._head(404, {"Content-Length": str(len(data))})
                self.wfile.write(data)
                return
            with file:
                size = os.fstat(file.fileno()).st_size
                start, end = 0, size
                wanted = self.headers.get("Range")
                if wanted:
                    first, _, last = wanted.removeprefix("bytes=").partition("-")
                    start, end = int(first), min(size, int(last) + 1) if last else size
                headers = {
                    "Content-Length": str(end - start),
                    "ETag": f'"{hashlib.md5(self.path.encode()).hexdigest()}"',
                    "Last-Modified": "Tue, 01 Dec 2026 00:00:00 GMT",
                    "Accept-Ranges": "bytes",
                }
                if wanted:
                    headers["Content-Range"] = f"bytes {start}-{end - 1}/{size}"
                self._head(206 if wanted else 200, headers)
                while body and start < end:
                    start += os.sendfile(
                        self.connection.fileno(), file.fileno(), start, end - start
                    )

        def _head(self, status: int, headers: dict[str, str]) -> None:
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.flush()

    class Server(ThreadingHTTPServer):
        daemon_threads = True
        request_queue_size = 128

        def handle_error(self, request: object, client_address: object) -> None:
            pass

        def get_request(self) -> tuple[socket.socket, object]:
            connection, address = super().get_request()
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return connection, address

    server = Server(("127.0.0.1", 0), Handler)
    print(f"http://127.0.0.1:{server.server_address[1]}", flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
