"""`build` and `run` with tiers, as users on several hosts would use them.

A host is a HOME with an empty store of its own; what they share is a bucket or a directory.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from neuroncompile.store import Store
from tests.conftest import ROOT, SMALL, Done, Run
from tests.tiers.conftest import ACCESS_KEY, SECRET
from tests.tiers.proxy import Proxy


@pytest.fixture
def s3_url(aws: None, bucket: str) -> str:
    return f"s3://{bucket}/team"


class Host:
    """A machine of its own: home and store."""

    def __init__(self, run: Run, home: Path, llama: Path) -> None:
        self.home, self.store = home, home / ".cache" / "neuroncompile"
        self.store.mkdir(parents=True)
        self._run, self._llama = run, llama

    def __call__(self, command: str, *args: str, **env: str) -> Done:
        return self._run(command, str(self._llama), *SMALL, *args, HOME=str(self.home), **env)

    def kept(self, kind: str) -> int:
        directory = self.store / "v1" / "actions" / kind
        return len(list(directory.iterdir())) if directory.is_dir() else 0


@pytest.fixture
def host(run: Run, llama: Path, tmp_path: Path) -> Host:
    """A consumer that has nothing and cannot compile: no g++ on its PATH."""
    return Host(run, tmp_path / "consumer", llama)


@pytest.fixture
def push(run: Run, llama: Path, store_root: Path, built_key: str) -> Any:
    def call(*urls: str, **env: str) -> Done:
        tiers = [f"--tier={url}" for url in urls]
        return run(
            *("build", str(llama), *SMALL, "--store", str(store_root), *tiers, "--push", "--json"),
            **env,
        )

    return call


def said(done: Done) -> dict[str, Any]:
    assert done.code == 0, done.out + done.err
    result: dict[str, Any] = done.document["result"]
    return result


@pytest.fixture(params=["file", "s3"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "file":
        return f"file://{tmp_path}/shared"
    found: str = request.getfixturevalue("s3_url")
    return found


NO_COMPILER = {"PATH": "/nonexistent"}


def test_push_from_one_host_hit_on_another(push: Any, host: Host, url: str, built_key: str) -> None:
    pushed = said(push(url))
    assert (pushed["hit"], pushed["source"], pushed["pushed"]) == (True, "store", [url])
    checked = said(host("build", "--tier", url, "--check", "--json", **NO_COMPILER))
    assert (checked["cached"], checked["source"], checked["tier"]) == (True, "tier", url)
    assert not (host.store / "v1").exists()
    built = said(host("build", "--tier", url, "--require-cached", "--json", **NO_COMPILER))
    assert (built["hit"], built["source"], built["tier"]) == (True, "tier", url)
    assert (built["key"], built["compiled"]) == (built_key, [])
    again = said(host("build", "--require-cached", "--json"))  # without the tier
    assert (again["hit"], again["source"], again["tier"]) == (True, "store", None)
    verified = host("run", "the cat", "--max-new-tokens=3", "--require-cached", "--json")
    assert len(said(verified)["completions"][0]["tokens"]) == 3


def test_run_pulls_too_and_names_the_tier(push: Any, host: Host, s3_url: str) -> None:
    assert push(s3_url).code == 0
    done = host("run", "the cat", "--max-new-tokens=3", "--tier", s3_url, **NO_COMPILER)
    assert done.code == 0, done.err
    assert f"from {s3_url}" in done.err
    assert host.kept("compile") == 1


def test_the_environment_and_the_settings_file_name_tiers(
    push: Any, host: Host, s3_url: str, tmp_path: Path
) -> None:
    other = f"file://{tmp_path}/other"
    (tmp_path / "other").mkdir()
    assert push(s3_url).code == 0
    checked = said(host("build", "--check", "--json", NEURONCOMPILE_TIER=f"{other}, {s3_url}"))
    assert checked["tier"] == s3_url
    settings = host.home / ".config" / "neuroncompile" / "settings.toml"
    settings.parent.mkdir(parents=True)
    settings.write_text(f'tiers = ["{other}", "{s3_url}"]\n')
    assert said(host("build", "--check", "--json"))["tier"] == s3_url
    missed = host("build", "--check", "--json", NEURONCOMPILE_TIER=other)  # in place of the file
    assert missed.code == 3


def test_the_nearest_tier_that_has_it_is_asked(
    push: Any, host: Host, s3_url: str, tmp_path: Path
) -> None:
    near = f"file://{tmp_path}/near"
    result = said(push(near, s3_url))
    assert result["pushed"] == [near, s3_url]
    assert (
        said(host("build", "--check", "--json", "--tier", near, "--tier", s3_url))["tier"] == near
    )
    assert (
        said(host("build", "--check", "--json", "--tier", s3_url, "--tier", near))["tier"] == s3_url
    )


def test_nobody_has_it(host: Host, s3_url: str) -> None:
    checked = host("build", "--tier", s3_url, "--check", "--json")
    assert (checked.code, checked.document["result"]["cached"]) == (3, False)
    required = host("build", "--tier", s3_url, "--require-cached", "--json")
    assert required.code == 3
    assert required.document["error"]["details"]["tiers"] == [s3_url]
    assert s3_url in required.document["error"]["message"]


def test_graphs_are_pulled_where_the_program_is_not_there(
    push: Any, host: Host, s3_url: str, run: Run, llama: Path
) -> None:
    """Another program of the same graphs: its key is new, and nothing is compiled."""
    assert push(s3_url).code == 0
    shorter = ("--seq-len=64", "--context-encoding-buckets=64", "--token-generation-buckets=64")
    done = run("build", str(llama), *shorter, "--tier", s3_url, "--json", HOME=str(host.home))
    result = said(done)
    assert (result["hit"], result["source"], result["compiled"]) == (False, "compiler", [])
    assert len(result["reused"]) == 3
    assert host.kept("graph") == 3


def broken_tier(kind: str, bucket: str, proxy: Proxy) -> tuple[str, dict[str, str]]:
    """URL and environment of a tier that cannot be read."""
    if kind == "forbidden":
        proxy.fault = lambda seen: "403"
    elif kind == "failing":
        proxy.fault = lambda seen: "503"
    elif kind == "silent":
        proxy.fault = lambda seen: "hang"
    elif kind == "resetting":
        proxy.fault = lambda seen: "reset"
    env = {"NEURONCOMPILE_TIER_TIMEOUT": "0.3"}
    if kind == "unreachable":
        env["AWS_ENDPOINT_URL"] = "http://127.0.0.1:1"
    return f"s3://{'nobodys-bucket' if kind == 'missing' else bucket}/x", env


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("missing", "bucket does not exist"),
        ("forbidden", "permission denied (HTTP 403 AccessDenied)"),
        ("failing", "the server failed (HTTP 503 SlowDown)"),
        ("silent", "no answer in time"),
        ("resetting", "the connection broke off"),
        ("unreachable", "cannot be reached"),
    ],
)
def test_a_tier_that_fails_is_exit_8_only_where_it_was_the_last_hope(
    host: Host, bucket: str, proxy: Proxy, kind: str, words: str
) -> None:
    url, env = broken_tier(kind, bucket, proxy)
    for option in ("--check", "--require-cached") if kind == "forbidden" else ("--check",):
        done = host("build", "--tier", url, option, "--json", **env)
        assert done.code == 8, done.err
        error = done.document["error"]
        assert error["type"] == "TierError"
        assert words in error["message"]
        assert error["hint"]
        assert error["details"]["field"] == "tier"
        assert any(words in text for text in done.document["warnings"])
        for secret in (ACCESS_KEY, SECRET):
            assert secret not in done.out + done.err


def test_a_build_goes_on_without_a_tier_that_fails(
    host: Host, bucket: str, proxy: Proxy, store_root: Path, built_key: str
) -> None:
    """With every graph at hand: what a build does after the tier is what it always does."""
    proxy.fault = lambda seen: "403"
    shutil.copytree(store_root / "v1", host.store / "v1", symlinks=True)
    (host.store / "v1" / "actions" / "compile" / built_key).unlink()
    done = host("build", "--tier", f"s3://{bucket}/x", "--json")
    result = said(done)
    assert (result["source"], result["key"], result["compiled"]) == ("compiler", built_key, [])
    [warning] = done.document["warnings"]
    assert "permission denied" in warning
    assert "going on without it" in warning
    assert proxy.count("GET", "/actions/") == 1  # and then not asked again


def test_a_tier_that_fails_does_not_hide_another(
    push: Any, host: Host, bucket: str, proxy: Proxy, tmp_path: Path
) -> None:
    good = f"file://{tmp_path}/good"
    assert push(good).code == 0
    proxy.fault = lambda seen: "403"
    both = ("--tier", f"s3://{bucket}/x", "--tier", good)
    assert said(host("build", *both, "--check", "--json"))["tier"] == good
    assert said(host("build", *both, "--require-cached", "--json"))["tier"] == good


def test_a_push_that_fails_keeps_what_was_built(
    push: Any, run: Run, llama: Path, bucket: str, proxy: Proxy, store_root: Path, built_key: str
) -> None:
    url = f"s3://{bucket}/x"
    proxy.fault = lambda seen: "403" if seen.method == "PUT" else None
    done = push(url)
    assert done.code == 8
    error = done.document["error"]
    assert str(store_root) in error["message"]
    assert "--push" in error["hint"]
    assert (store_root / "v1" / "actions" / "compile" / built_key).exists()
    proxy.fault = None
    assert said(push(url))["pushed"] == [url]


def test_push_needs_a_tier_and_excludes_looking(host: Host, s3_url: str) -> None:
    done = host("build", "--push")
    assert done.code == 2
    assert "NEURONCOMPILE_TIER" in done.err
    assert host("build", "--push", "--check", "--tier", s3_url).code == 2


def test_a_misspelt_url_is_said_at_once(host: Host) -> None:
    done = host("build", "--tier", "s4://bucket/x", "--json")
    assert done.code == 8
    assert done.document["error"]["details"]["legal"] == ["s3://BUCKET/PREFIX", "file:///PATH"]
    assert host.kept("graph") == 0


def test_offline_reads_directories_only(
    push: Any, host: Host, bucket: str, proxy: Proxy, tmp_path: Path
) -> None:
    s3, near = f"s3://{bucket}/x", f"file://{tmp_path}/near"
    assert push(s3, near).code == 0
    before = len(proxy.seen)
    missed = host("build", "--offline", "--tier", s3, "--check", "--json")
    assert missed.code == 3
    assert "offline" in missed.err
    found = said(host("build", "--offline", "--tier", s3, "--tier", near, "--check", "--json"))
    assert found["tier"] == near
    assert len(proxy.seen) == before
    refused = push(s3, HF_HUB_OFFLINE="1")
    assert refused.code == 8
    assert "offline" in refused.document["error"]["message"]


def test_corrupt_in_the_tier_is_repaired_by_the_next_push(
    push: Any, host: Host, tmp_path: Path, store_root: Path, built_key: str
) -> None:
    url = f"file://{tmp_path}/shared"
    assert push(url).code == 0
    artifact = Store(store_root).lookup("compile", built_key)
    assert artifact is not None
    [program] = [layer for layer in artifact.layers if layer.title == "program.json"]
    name = program.digest.removeprefix("sha256:")
    blob = tmp_path / "shared" / "v1" / "blobs" / "sha256" / name
    data = blob.read_bytes()
    blob.chmod(0o644)
    blob.write_bytes(b"X" + data[1:])
    required = host("build", "--tier", url, "--require-cached", "--json")
    assert required.code == 8
    assert "other bytes" in required.document["error"]["message"]
    assert host.kept("compile") == 0
    shutil.copytree(store_root / "v1" / "actions" / "graph", host.store / "v1/actions/graph")
    shutil.copytree(store_root / "v1" / "blobs", host.store / "v1" / "blobs", dirs_exist_ok=True)
    (host.store / "v1" / "blobs" / "sha256" / name).unlink()
    done = host("build", "--tier", url, "--push", "--json")
    assert said(done)["source"] == "compiler"
    assert blob.read_bytes() == data


def test_ctrl_c_during_a_pull_is_130_and_loses_nothing(
    push: Any, host: Host, bucket: str, proxy: Proxy, llama: Path
) -> None:
    url = f"s3://{bucket}/x"
    assert push(url).code == 0
    proxy.fault = lambda seen: "slow" if seen.method == "GET" and seen.blob else None
    proxy.piece, proxy.pause = 2000, 0.01
    process = subprocess.Popen(
        [sys.executable, "-m", "neuroncompile", "build", str(llama), *SMALL, "--tier", url],
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT), "HOME": str(host.home)},
        start_new_session=True,
        # A shell's background job ignores SIGINT, and so would everything below it.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    partial, end = host.store / "v1" / "partial", time.monotonic() + 60
    while not (partial.is_dir() and len(list(partial.iterdir())) >= 4):
        assert time.monotonic() < end
        assert process.poll() is None
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    proxy.fault = None
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert "interrupted while pulling" in err
    assert host.kept("compile") == 0
    built = said(host("build", "--tier", url, "--require-cached", "--json"))
    assert built["source"] == "tier"
    assert list(partial.iterdir()) == []


def test_a_local_hit_imports_nothing_of_tiers(
    llama: Path, store_root: Path, built_key: str, s3_url: str
) -> None:
    argv = ["build", str(llama), *SMALL, "--store", str(store_root), "--tier", s3_url]
    code = (
        f"import sys; from neuroncompile.cli import main; code = main({argv!r}); "
        "print([m for m in sys.modules if m.startswith(('obstore', 'neuroncompile.tiers'))])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert done.stdout.splitlines()[-1] == "[]"
