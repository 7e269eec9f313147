"""`store du|stats|gc|pin|unpin|rm|verify` and the filters of `store ls`, as a user runs them."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path
from typing import Any

import pytest

from neuroncompile.errors import ConfigError
from neuroncompile.pipeline.amounts import parse_bytes, parse_seconds
from tests.conftest import Run

DAY = 86400


@pytest.fixture
def store(store_root: Path, built_key: str, tmp_path: Path) -> Path:
    """A copy of the compiled store that was last used two months ago."""
    copy = tmp_path / "store"
    shutil.copytree(store_root, copy, symlinks=True)
    then = time.time() - 60 * DAY
    for path in [*copy.glob("v1/actions/*/*"), *copy.glob("v1/blobs/sha256/*")]:
        os.utime(path, (then, then))
    return copy


def result(run: Run, store: Path, *args: str, code: int = 0) -> dict[str, Any]:
    done = run("store", *args, "--store", str(store), "--json")
    assert done.code == code, done.err
    found: dict[str, Any] = done.document["result"]
    return found


def test_ls_filters_and_sorts(run: Run, store: Path, built_key: str) -> None:
    rows = result(run, store, "ls", "--sort", "size")["artifacts"]
    assert [r["bytes"] for r in rows] == sorted((r["bytes"] for r in rows), reverse=True)
    for row in rows:
        assert row["shared_bytes"] <= row["bytes"]
        if row["kind"] == "graph":
            assert row["unique_bytes"] < 10_000, "its files are also the program's"
    assert result(run, store, "ls", "--unused", "30d")["found"] == len(rows)
    assert result(run, store, "ls", "--unused", "90d")["artifacts"] == []
    (only,) = result(run, store, "ls", "--match", built_key[:12], "--kind", "compile")["artifacts"]
    assert only["key"] == built_key
    assert len(result(run, store, "ls", "--limit", "1")["artifacts"]) == 1
    done = run("store", "ls", "--sort", "age", "--store", str(store))
    assert done.code == 5
    assert "used, size, unique, kind or key" in done.err


def test_du_counts_each_blob_once(run: Run, store: Path) -> None:
    usage = result(run, store, "du")
    blobs = list((store / "v1" / "blobs" / "sha256").iterdir())
    assert usage["blobs"] == len(blobs)
    assert usage["bytes"] == sum(p.stat().st_size for p in blobs)
    listed = result(run, store, "ls")["artifacts"]
    assert usage["bytes"] < sum(r["bytes"] for r in listed)
    assert usage["kinds"]["compile"]["artifacts"] == sum(r["kind"] == "compile" for r in listed)


def test_gc_says_first_and_does_with_yes(run: Run, store: Path, built_key: str) -> None:
    before = sorted(store.rglob("*"))
    said = result(run, store, "gc", "--max-age", "30d", "--keep", built_key[:12])
    assert [p for p in before if not p.exists()] == []
    assert said["dry_run"]
    assert {r["reason"] for r in said["removed"]} <= {"age"}
    assert said["kept"]["keep"]["artifacts"] == 1
    done = result(run, store, "gc", "--max-age", "30d", "--keep", built_key[:12], "--yes")
    assert {**done, "dry_run": True} == said
    assert [r["key"] for r in result(run, store, "ls", "--kind", "compile")["artifacts"]] == [
        built_key
    ]
    text = run("store", "gc", "--max-size", "0", "--store", str(store))
    assert "would remove" in text.out
    assert "--yes" in text.err
    run("store", "gc", "--max-size", "0", "--yes", "--store", str(store))
    assert result(run, store, "du")["bytes"] == 0
    assert result(run, store, "verify")["problems"] == []


def test_gc_of_what_was_just_used_keeps_it_and_says_so(run: Run, store: Path) -> None:
    for path in store.glob("v1/actions/*/*"):
        os.utime(path)
    done = run("store", "gc", "--max-size", "1k", "--yes", "--store", str(store))
    assert done.code == 0
    assert "removed 0 artifacts" in done.out
    assert "--grace 0" in done.err
    assert "used within the grace period" in done.out


def test_a_pin_keeps_until_it_goes(run: Run, store: Path, built_key: str) -> None:
    assert run("store", "pin", built_key[:12], "--name", "prod", "--store", str(store)).code == 0
    assert result(run, store, "show", "prod")["key"] == built_key
    result(run, store, "gc", "--max-size", "0", "--yes")
    assert result(run, store, "ls", "--kind", "compile")["found"] == 1
    refused = run("store", "rm", "prod", "--store", str(store))
    assert refused.code == 7
    assert "--force" in refused.err
    assert run("store", "unpin", "staging", "--store", str(store)).code == 7
    assert result(run, store, "unpin", built_key[:12]) == {"unpinned": ["prod"]}
    result(run, store, "gc", "--max-size", "0", "--yes")
    assert result(run, store, "du")["bytes"] == 0


def test_rm_removes_all_or_refuses_first(run: Run, store: Path, built_key: str) -> None:
    done = run("store", "rm", built_key[:12], "deadbeefdead", "--store", str(store))
    assert done.code == 7
    assert result(run, store, "show", built_key[:12])["key"] == built_key
    removed = result(run, store, "rm", built_key)["removed"]
    assert [r["key"] for r in removed] == [built_key]
    assert run("store", "show", built_key, "--store", str(store)).code == 7


def test_verify_finds_and_repairs(run: Run, store: Path, built_key: str) -> None:
    assert result(run, store, "verify")["problems"] == []
    program = result(run, store, "show", built_key)["files"][0]
    blob = store / "v1" / "blobs" / "sha256" / program["digest"].removeprefix("sha256:")
    blob.chmod(0o644)
    blob.write_bytes(b"\0" + blob.read_bytes()[1:])
    done = run("store", "verify", "--store", str(store))
    assert done.code == 7
    assert "--repair" in done.err
    assert f"artifact compile {built_key}" in done.out
    repaired = result(run, store, "verify", "--repair")
    assert all(p["repaired"] for p in repaired["problems"])
    assert result(run, store, "verify")["problems"] == []
    assert run("store", "show", built_key, "--store", str(store)).code == 7


def test_stats_counts_hits_and_what_they_saved(
    run: Run, llama: Path, store: Path, built_key: str
) -> None:
    from tests.conftest import SMALL

    before = result(run, store, "stats")
    for _ in range(3):
        assert run("build", str(llama), *SMALL, "--store", str(store)).code == 0
    after = result(run, store, "stats")
    assert after["hits"] - before["hits"] == 3
    assert after["misses"] == before["misses"]
    assert after["seconds"] > before["seconds"] + 3
    assert after["bytes"] > before["bytes"]
    result(run, store, "gc", "--max-size", "0", "--yes")
    assert result(run, store, "stats") == after, "collecting keeps the counts"


def test_a_layer_below_is_enough(run: Run, llama: Path, store: Path, tmp_path: Path) -> None:
    from tests.conftest import SMALL

    layer = {"NEURONCOMPILE_LAYERS": str(store)}
    upper = tmp_path / "upper"
    command = ("build", str(llama), *SMALL, "--store", str(upper), "--json")
    assert run(*command, "--check", **layer).code == 0
    assert not (upper / "v1").exists()
    assert run(*command, "--require-cached", **layer).document["result"]["hit"] is True
    assert run(*command, "--check").code == 3
    missing = run(*command, NEURONCOMPILE_LAYERS=str(tmp_path / "not mounted"))
    assert missing.code == 5
    assert "NEURONCOMPILE_LAYERS" in missing.document["error"]["hint"]


@pytest.mark.parametrize(
    ("text", "value"),
    [("0", 0), ("4096", 4096), ("10G", 10**10), ("1.5TiB", 3 * 2**39), ("500 MB", 5 * 10**8)],
)
def test_sizes(text: str, value: int) -> None:
    assert parse_bytes(text, "max_size") == value


@pytest.mark.parametrize(
    ("text", "value"),
    [("0", 0), ("90m", 5400), ("1.5h", 5400), ("30d", 30 * DAY), ("2w", 14 * DAY)],
)
def test_durations(text: str, value: float) -> None:
    assert parse_seconds(text, "max_age") == value


@pytest.mark.parametrize("text", ["", "10X", "-1", "G", "1e9", "ten", "5", "1.2.3"])
def test_what_is_no_amount_is_refused(text: str) -> None:
    if text != "5":
        with pytest.raises(ConfigError, match="--max-size"):
            parse_bytes(text, "max_size")
    with pytest.raises(ConfigError, match="--max-age"):
        parse_seconds(text, "max_age")


@pytest.mark.parametrize("command", ["gc", "verify", "du"])
def test_an_empty_answer_names_the_place(run: Run, tmp_path: Path, command: str) -> None:
    done = run("store", command, "--store", str(tmp_path / "stroe"))
    assert done.code == 0
    assert f"no store in {tmp_path / 'stroe'} (--store)" in done.err
    assert not (tmp_path / "stroe").exists()


def test_a_misspelt_command_of_the_group_points_to_its_help(run: Run) -> None:
    done = run("store", "gcc")
    assert done.code == 2
    assert "hint: neuroncompile store --help" in done.err
