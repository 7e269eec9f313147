"""An S3 server for the session, a faulty proxy before it, and artifacts to send about."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from neuroncompile.keys import spec_key
from neuroncompile.store import Artifact, Layer, Store
from neuroncompile.tiers import MemoryTier, Tier, open_tier
from tests.store.conftest import read_only, small_disk  # noqa: F401  fixtures
from tests.tiers.proxy import Proxy

SECRET = "wJalrXUtnFEMIsecretEXAMPLEKEY"
ACCESS_KEY = "AKIDEXAMPLE"
KINDS = ("memory", "file", "s3")


SERVER = """
import sys, threading
from moto.server import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import run_simple

application, one = DomainDispatcherApplication(create_backend_app), threading.Lock()

def atomic(environ, start_response):
    if environ["REQUEST_METHOD"] != "PUT":
        return application(environ, start_response)
    with one:
        return application(environ, start_response)

run_simple("127.0.0.1", int(sys.argv[1]), atomic, threaded=True)
"""


@pytest.fixture(scope="session")
def s3_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """URL of a moto server in a process of its own.

    Its conditional PUT looks and then puts, in several threads; S3's is atomic, so ours is made
    so by a lock.
    """
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    log = tmp_path_factory.mktemp("moto") / "log"
    with log.open("wb") as file:
        process = subprocess.Popen(
            [sys.executable, "-c", SERVER, str(port)],
            stdout=file,
            stderr=file,
        )
    end = time.monotonic() + 60
    while True:
        try:
            socket.create_connection(("127.0.0.1", port)).close()
            break
        except OSError:
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < end, "the S3 server does not start"
            time.sleep(0.05)
    yield f"http://127.0.0.1:{port}"
    process.terminate()
    process.wait()


@pytest.fixture
def bucket(s3_server: str) -> str:
    """A new bucket's name."""
    name = f"b-{uuid.uuid4().hex[:12]}"
    request = urllib.request.Request(f"{s3_server}/{name}", method="PUT", data=b"")
    urllib.request.urlopen(request).close()
    return name


@pytest.fixture
def aws(s3_server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The environment of somebody who may use the server."""
    for name in list(os.environ):
        if name.startswith("AWS_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_ENDPOINT_URL", s3_server)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", ACCESS_KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    monkeypatch.setenv("AWS_REGION", "us-east-1")


@pytest.fixture
def proxy(s3_server: str, aws: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[Proxy]:
    """The server as seen through a proxy, which passes everything until told otherwise."""
    made = Proxy(s3_server)
    monkeypatch.setenv("AWS_ENDPOINT_URL", made.url)
    yield made
    made.close()


@pytest.fixture
def s3(proxy: Proxy, bucket: str) -> Iterator[Tier]:
    """An S3 tier behind the proxy."""
    with open_tier(f"s3://{bucket}/some/prefix", timeout=5) as tier:
        yield tier


@pytest.fixture(params=KINDS)
def tier(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Tier]:
    """One tier of each kind, empty."""
    if request.param == "memory":
        yield MemoryTier()
        return
    if request.param == "file":
        url = f"file://{tmp_path}/shared"
    else:
        request.getfixturevalue("aws")
        url = f"s3://{request.getfixturevalue('bucket')}/pre"
    with open_tier(url, create=True) as made:
        yield made


def spec(number: int = 0) -> dict[str, Any]:
    return {"schema": 1, "kind": "graph", "backend": "cpu", "bucket": number}


class Kit:
    """Stores in one directory, and what is published in them."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.warnings: list[str] = []
        self.here = self.store("here")

    def store(self, name: str) -> Store:
        return Store(self.root / name, on_warning=self.warnings.append)

    def key(self, number: int = 0) -> str:
        return spec_key(spec(number))

    def publish(
        self, number: int = 0, *, size: int = 0, store: Store | None = None, text: bytes = b"x"
    ) -> Artifact:
        """Three small files, one empty, and one of `size` random bytes if that is not 0."""
        layers = [
            Layer("program.json", data=b"{}" + text),
            Layer("graphs/a/model.so", data=text * 5000),
            Layer("graphs/b/empty", data=b""),
        ]
        if size:
            layers.append(Layer("weights.bin", data=os.urandom(size)))
        made = (store or self.here).publish("graph", spec(number), layers, provenance={"by": "us"})
        return made

    def big(self, artifact: Artifact) -> str:
        """Hex digest of the largest file."""
        return max(artifact.layers, key=lambda d: d.size).digest.removeprefix("sha256:")

    def partials(self, store: Store) -> dict[str, int]:
        directory = store.root / "v1" / "partial"
        return {p.name: p.stat().st_size for p in directory.iterdir()} if directory.exists() else {}


@pytest.fixture
def kit() -> Iterator[Kit]:
    """In memory where there is a tmpfs: publishing syncs."""
    shm = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="neuroncompile-", dir=shm) as root:
        yield Kit(Path(root))
