"""Pull and push through a connection that resets, lies, stalls and refuses."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from neuroncompile.errors import TierError
from neuroncompile.store import Artifact
from neuroncompile.tiers import Tier, failure_class, find, open_tier, pull, push
from tests.conftest import ROOT
from tests.tiers.conftest import ACCESS_KEY, SECRET, Kit
from tests.tiers.proxy import Proxy, Seen

SIZE = 20 << 20  # three ranges


@pytest.fixture
def pushed(kit: Kit, s3: Tier) -> Artifact:
    artifact = kit.publish(size=SIZE)
    push(kit.here, s3, artifact)
    return artifact


def times(count: int, fault: str, *, method: str = "GET", part: str = "/blobs/") -> object:
    """The fault for the first `count` such requests."""
    left = [count]

    def decide(seen: Seen) -> str | None:
        if seen.method != method or part not in seen.path or left[0] == 0:
            return None
        left[0] -= 1
        return fault

    return decide


@pytest.mark.parametrize("fault", ["reset", "503", "short"])
def test_what_passes_is_survived(
    kit: Kit, s3: Tier, proxy: Proxy, pushed: Artifact, fault: str
) -> None:
    proxy.fault = times(3, fault)  # type: ignore[assignment]
    there = kit.store("there")
    pulled = pull(there, s3, "graph", pushed.key)
    assert pulled is not None
    assert there.lookup("graph", pushed.key, verify="full") == pushed
    assert kit.warnings == []


@pytest.mark.parametrize("fault", ["reset", "503"])
def test_a_push_survives_what_passes(kit: Kit, s3: Tier, proxy: Proxy, fault: str) -> None:
    artifact = kit.publish(size=SIZE)
    proxy.fault = times(3, fault, method="PUT", part="")  # type: ignore[assignment]
    assert push(kit.here, s3, artifact).named
    proxy.fault = None
    assert pull(kit.store("there"), s3, "graph", artifact.key) is not None


@pytest.mark.parametrize(
    ("fault", "failure"),
    [
        ("reset", "interrupted"),
        ("503", "server"),
        ("403", "forbidden"),
        ("flip", "corrupt"),
        ("cut", None),
        ("short", None),
    ],
)
def test_what_stays_is_an_error_and_names_nothing(
    kit: Kit, s3: Tier, proxy: Proxy, pushed: Artifact, fault: str, failure: str | None
) -> None:
    big = kit.big(pushed)
    proxy.fault = lambda seen: fault if seen.method == "GET" and seen.blob == big else None
    there = kit.store("there")
    before = proxy.count("GET")
    with pytest.raises(TierError) as caught:
        pull(there, s3, "graph", pushed.key)
    if failure is not None:
        assert failure_class(caught.value) == failure
    assert caught.value.hint
    assert proxy.count("GET") - before < 100
    assert list(there.artifacts()) == []
    assert there.lookup("graph", pushed.key) is None
    proxy.fault = None
    assert pull(there, s3, "graph", pushed.key) is not None
    assert there.lookup("graph", pushed.key, verify="full") == pushed
    assert kit.partials(there) == {}


def test_flipped_once_is_fetched_again(kit: Kit, s3: Tier, proxy: Proxy, pushed: Artifact) -> None:
    big = kit.big(pushed)
    once = times(1, "flip", part=big)
    proxy.fault = once  # type: ignore[assignment]
    there = kit.store("there")
    assert pull(there, s3, "graph", pushed.key) is not None
    assert there.lookup("graph", pushed.key, verify="full") == pushed
    assert SIZE < proxy.sent(big) <= 2 * SIZE


def test_a_failed_pull_goes_on_where_it_stopped(
    kit: Kit, s3: Tier, proxy: Proxy, pushed: Artifact
) -> None:
    big, there = kit.big(pushed), kit.store("there")
    third = f"bytes={16 << 20}-"
    proxy.fault = lambda seen: (
        "403" if seen.blob == big and (seen.range or "").startswith(third) else None
    )
    with pytest.raises(TierError):
        pull(there, s3, "graph", pushed.key)
    [kept] = [size for name, size in kit.partials(there).items() if name == big]
    assert kept == 16 << 20
    proxy.fault, before = None, proxy.sent(big)
    assert pull(there, s3, "graph", pushed.key) is not None
    assert proxy.sent(big) - before == SIZE - kept
    assert there.lookup("graph", pushed.key, verify="full") == pushed
    assert kit.partials(there) == {}


PULLER = """
import sys
from pathlib import Path
from neuroncompile.store import Store
from neuroncompile.tiers import open_tier, pull
url, store, key = sys.argv[1:]
print(pull(Store(Path(store)), open_tier(url), "graph", key) is not None)
"""


def puller(tier: Tier, store: Path, key: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", PULLER, tier.url, str(store), key],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )


def test_a_killed_pull_goes_on_where_it_stopped(
    kit: Kit, s3: Tier, proxy: Proxy, pushed: Artifact
) -> None:
    big, there = kit.big(pushed), kit.store("there")
    proxy.piece, proxy.pause = 1000, 0.02  # less than is handed on at once
    proxy.fault = lambda seen: (
        "slow" if seen.blob == big and not (seen.range or "").startswith("bytes=0-") else None
    )
    process = puller(s3, there.root, pushed.key)
    end = time.monotonic() + 60
    while sum(s for name, s in kit.partials(there).items() if name.startswith(big)) < 8 << 20:
        assert time.monotonic() < end
        assert process.poll() is None
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    process.wait()
    time.sleep(0.5)  # until the proxy has noticed
    assert list(there.artifacts()) == []
    [kept] = [size for name, size in kit.partials(there).items() if name.startswith(big)]
    assert kept == 8 << 20
    proxy.fault = None
    before, before_all = proxy.sent(big), proxy.sent()
    second = puller(s3, there.root, pushed.key)
    assert second.communicate(timeout=120)[0] == "True\n"
    assert proxy.sent(big) - before == SIZE - kept
    assert proxy.sent() - before_all < SIZE - kept + 10_000  # the small ones had come whole
    assert there.lookup("graph", pushed.key, verify="full") == pushed
    assert kit.partials(there) == {}


def test_two_pullers_at_once_share_no_file(
    kit: Kit, s3: Tier, proxy: Proxy, pushed: Artifact
) -> None:
    there = kit.store("there")
    proxy.fault = lambda seen: "slow" if seen.method == "GET" and seen.blob else None
    proxy.pause = 0.0005
    both = [puller(s3, there.root, pushed.key) for _ in range(2)]
    assert [p.communicate(timeout=120)[0] for p in both] == ["True\n", "True\n"]
    assert there.lookup("graph", pushed.key, verify="full") == pushed
    assert kit.partials(there) == {}


def test_a_pusher_killed_anywhere_leaves_no_name(kit: Kit, s3: Tier, proxy: Proxy) -> None:
    """The requests of a push, cut off after each of them in turn."""
    artifact = kit.publish(size=100_000)
    tier = open_tier(f"{s3.url}/whole")
    first = len(proxy.seen)
    push(kit.here, tier, artifact)
    writes = sum(seen.method == "PUT" for seen in proxy.seen[first:])
    assert writes == 9  # five blobs, manifest, provenance, the tree's mark, the pointer
    for allowed in range(writes):
        tier = open_tier(f"{s3.url}/cut{allowed}")
        left = [allowed]

        def cut(seen: Seen, left: list[int] = left) -> str | None:
            if seen.method == "PUT":
                left[0] -= 1
                return "403" if left[0] < 0 else None
            return None

        proxy.fault = cut
        with pytest.raises(TierError):
            push(kit.here, tier, artifact)
        proxy.fault = None
        assert find(tier, "graph", artifact.key) is None
        assert push(kit.here, tier, artifact).named
        assert pull(kit.store(f"there{allowed}"), tier, "graph", artifact.key) is not None


PUSHER = """
import sys, time
from pathlib import Path
from neuroncompile.store import Layer, Store
from neuroncompile.tiers import open_tier, push
url, root, who, begin = sys.argv[1:]
store = Store(Path(root) / who)
spec = {"schema": 1, "kind": "graph", "backend": "cpu", "bucket": 0}
artifact = store.publish("graph", spec, [Layer("out", data=who.encode() * 9999)])
time.sleep(max(0, float(begin) - time.time()))
print(push(store, open_tier(url), artifact).named)
"""


@pytest.mark.parametrize("kind", ["file", "s3"])
def test_racing_pushers_all_succeed_and_one_wins(
    kit: Kit, kind: str, request: pytest.FixtureRequest
) -> None:
    url = f"file://{kit.root}/shared"
    if kind == "s3":
        request.getfixturevalue("aws")
        url = f"s3://{request.getfixturevalue('bucket')}"
    open_tier(url, create=True)
    begin = time.time() + 2
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", PUSHER, url, str(kit.root), f"host{number}", str(begin)],
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )
        for number in range(4)
    ]
    said = [process.communicate(timeout=120)[0] for process in processes]
    assert [process.returncode for process in processes] == [0, 0, 0, 0]
    assert sorted(said) == ["False\n"] * 3 + ["True\n"]
    winner = f"host{said.index('True' + chr(10))}"
    pulled = pull(kit.store("there"), open_tier(url), "graph", kit.key())
    assert pulled is not None
    view = kit.store("there").view(pulled.artifact)
    assert (view / "out").read_text() == winner * 9999


def test_memory_does_not_grow_with_the_blob(kit: Kit, s3: Tier, proxy: Proxy, aws: None) -> None:
    """200 MB through pull and push in a process that may have 250 MB more than it starts with."""
    artifact = kit.publish(size=200 << 20)
    code = (
        "import resource, sys\n"
        "from pathlib import Path\n"
        "from neuroncompile.store import Store\n"
        "from neuroncompile.tiers import open_tier, pull, push\n"
        "url, here, there, key = sys.argv[1:]\n"
        "peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024\n"
        "store, tier = Store(Path(here)), open_tier(url)\n"
        "before = peak()\n"
        "push(store, tier, store.lookup('graph', key))\n"
        "pushing = peak()\n"
        "pull(Store(Path(there)), tier, 'graph', key)\n"
        "print(pushing - before, peak() - before)\n"
    )
    url = f"file://{kit.root}/shared"
    open_tier(url, create=True)
    done = subprocess.run(
        [sys.executable, "-c", code, url, str(kit.here.root), str(kit.root / "t"), artifact.key],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    pushing, both = map(float, done.stdout.split())
    assert pushing < 150
    assert both < 170


def test_nothing_secret_is_said(kit: Kit, s3: Tier, proxy: Proxy, pushed: Artifact) -> None:
    proxy.fault = lambda seen: "403"
    with pytest.raises(TierError) as caught:
        pull(kit.store("there"), s3, "graph", pushed.key)
    said = f"{caught.value} {caught.value.as_json()} {caught.value!r} {caught.value.__cause__}"
    assert "403" in said
    assert "permission denied" in said
    for secret in (ACCESS_KEY, SECRET):
        assert secret not in said
