"""Matrices built for real: cold, warm, one that fails, shards, tiers, interruptions."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from neuroncompile.backends import backend_for
from neuroncompile.errors import ConfigError, ModelNotFoundError
from neuroncompile.pipeline.plan import make_plan
from neuroncompile.pipeline.prewarm import programs
from neuroncompile.pipeline.request import BuildRequest
from neuroncompile.settings import Settings, load_settings
from neuroncompile.store import Store
from tests.conftest import ROOT, Done, Run, outside_a_test
from tests.store.conftest import read_only  # noqa: F401  a fixture

NO_COMPILER = {"PATH": "/nonexistent"}

SMALL_CONFIG = """
seq_len = 64
context_encoding_buckets = [16, 64]
token_generation_buckets = [64]
"""
"""`tests.conftest.SMALL`, so that one point of every matrix here is compiled already."""


def write_recipe(path: Path, llama: Path, more: str = "") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f'schema = 1\n[model]\nref = "{llama}"\n[config]{SMALL_CONFIG}{more}')
    return path


def matrix(*batches: int) -> str:
    return f'[matrix]\n"config.batch_size" = {list(batches)}\n'


def rows(done: Done) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = done.document["result"]["programs"]
    return found


def statuses(done: Done) -> list[str]:
    return [row["status"] for row in rows(done)]


def tree(root: Path) -> dict[str, int]:
    return {str(path): path.lstat().st_mtime_ns for path in root.rglob("*")}


# ---- what is named


def test_programs_are_named_once_and_in_order(
    tmp_path: Path, llama: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write_recipe(Path("recipes/grid.toml"), llama, matrix(4, 1))
    write_recipe(Path("recipes/plain.toml"), llama)
    write_recipe(Path("other/a.toml"), llama, matrix(1))
    Path("other/notes.md").write_text("no recipe")
    found = list(programs(["grid[batch_size=1]", "recipes", "plain", "other", "recipes/grid.toml"]))
    assert [row.name for row in found] == [
        "grid[batch_size=1]",
        "grid[batch_size=4]",
        "plain",
        "a[batch_size=1]",
    ]
    assert found[0].cell == {"config.batch_size": 1}
    assert found[2].reference == "recipes/plain.toml"
    assert found[3].reference == "other/a.toml[batch_size=1]"


def test_a_recipe_that_cannot_be_read_is_one_program_that_fails(
    tmp_path: Path, llama: Path
) -> None:
    write_recipe(tmp_path / "fine.toml", llama)
    (tmp_path / "bad.toml").write_text("schema = 1\n[modle]\n")
    bad, fine = programs([str(tmp_path)])
    assert isinstance(bad.error, ConfigError)
    assert (bad.name, fine.name, fine.error) == ("bad", "fine", None)


@pytest.mark.parametrize("argument", ["nosuch", "./nosuch.toml", "EMPTY"])
def test_an_argument_that_names_nothing_is_refused_before_anything(
    run: Run, tmp_path: Path, llama: Path, argument: str
) -> None:
    recipe = write_recipe(tmp_path / "fine.toml", llama)
    (tmp_path / "empty").mkdir()
    argument = argument.replace("EMPTY", str(tmp_path / "empty"))
    with pytest.raises(ModelNotFoundError):
        list(programs([str(recipe), argument]))
    store = tmp_path / "store"
    done = run("prewarm", str(recipe), argument, "--store", str(store))
    assert done.code == 4
    assert not store.exists()


def test_shipped_recipes_are_named_and_ci_files_are_none_of_them(run: Run) -> None:
    listed = run("recipes", "ls", "--json").document["result"]
    assert "ci" not in {recipe["name"] for recipe in listed}
    assert not [recipe for recipe in listed if "/ci/" in recipe["path"]]
    done = run("prewarm", str(ROOT / "recipes"), "--check", "--json")
    assert {row["recipe"] for row in rows(done)} == {recipe["name"] for recipe in listed}
    assert done.code == 3
    assert set(statuses(done)) == {"cold"}


# ---- the same keys as build's

NEURON = {
    "target.platform": st.sampled_from(["trn1", "inf2"]),
    "toolchain.sdk": st.sampled_from(["2.27", "2.28"]),
    "config.batch_size": st.integers(1, 8),
    "config.seq_len": st.sampled_from([1024, 2048]),
    "config.enable_bucketing": st.booleans(),
}


@settings(
    max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    st.lists(st.sampled_from(sorted(NEURON)), unique=True, min_size=1).flatmap(
        lambda axes: st.fixed_dictionaries(
            {axis: st.lists(NEURON[axis], unique=True, min_size=1, max_size=2) for axis in axes}
        )
    )
)
def test_points_have_the_keys_of_build_with_the_same_values(
    tmp_path: Path, axes: dict[str, list[Any]]
) -> None:
    grid = tmp_path / "grid.toml"
    text = "\n".join(f'"{axis}" = {json.dumps(values)}' for axis, values in axes.items())
    grid.write_text(f'schema = 1\nextends = "llama-3.1-8b-trn1"\n[matrix]\n{text}\n')
    ours = load_settings(environ={"HOME": str(tmp_path)})
    found = list(programs([str(grid)]))
    size = 1
    for values in axes.values():
        size *= len(values)
    assert len(found) == size
    keys = []
    for row in found:
        sdk = row.cell.get("toolchain.sdk")
        said = BuildRequest(
            "llama-3.1-8b-trn1",
            target=row.cell.get("target.platform"),
            sets=tuple(
                f"{axis.removeprefix('config.')}={json.dumps(value)}"
                for axis, value in row.cell.items()
                if axis.startswith("config.")
            ),
            toolchain=f"sdk-{sdk}" if sdk else None,
        )
        assert answer(BuildRequest(row.reference), ours) == answer(said, ours), row.name
        keys.append(answer(said, ours))
    legal = [key for key in keys if isinstance(key, str)]
    assert len(set(legal)) == len(legal)


def answer(request: BuildRequest, ours: Settings) -> str | tuple[str | None, object]:
    """The key, or field and value that are refused."""
    try:
        return make_plan(request, ours, from_facts=True).key
    except ConfigError as error:
        return error.field, error.value


# ---- a matrix built for real


@dataclass(frozen=True)
class Warmed:
    """A store after one run over three points: 9 is refused, 6 was cold, 1 was warm.

    No other test builds 9 or 6 into the session's store, of which this is a copy.
    """

    store: Path
    grid: Path
    plain: Path
    record: Path
    junit: Path
    done: Done


@pytest.fixture(scope="module")
def warmed(
    tmp_path_factory: pytest.TempPathFactory,
    llama: Path,
    store_root: Path,
    built_key: str,
    machine_cache: Path,
) -> Warmed:
    base = tmp_path_factory.mktemp("prewarm")
    passing = shutil.ignore_patterns("tmp", "leases", "partial")  # others may be building there
    shutil.copytree(store_root, base / "store", symlinks=True, ignore=passing)
    grid = write_recipe(base / "recipes" / "grid.toml", llama, matrix(9, 6, 1))
    plain = write_recipe(base / "good" / "plain.toml", llama, matrix(6, 1))
    reject(base / "store", f"{grid}[batch_size=9]")
    done = subprocess.run(
        [
            *(sys.executable, "-m", "neuroncompile", "prewarm", str(grid), "--json"),
            *("--store", str(base / "store")),
            *("--record", str(base / "record.jsonl"), "--junit", str(base / "junit.xml")),
        ],
        capture_output=True,
        text=True,
        env=outside_a_test(machine_cache),
    )
    return Warmed(
        base / "store",
        grid,
        plain,
        base / "record.jsonl",
        base / "junit.xml",
        Done(done.returncode, done.stdout, done.stderr),
    )


def reject(store: Path, reference: str) -> None:
    """As if a compiler had rejected a graph of this program within the last day."""
    plan = make_plan(BuildRequest(reference), load_settings(store=store))
    batch = plan.config["batch_size"]
    graph = next(g for g in backend_for("cpu").graphs(plan.spec) if g.batch == batch and g.key)
    Store(store).remember_failure("graph", graph.key, "no such operator", log=b"why it failed\n")


def test_one_failure_does_not_stop_the_others(warmed: Warmed, built_key: str, run: Run) -> None:
    assert warmed.done.code == 6
    failed, built, warm = rows(warmed.done)
    assert [failed["status"], built["status"], warm["status"]] == ["failed", "built", "warm"]
    assert (failed["exit_code"], built["exit_code"], warm["exit_code"]) == (6, 0, 0)
    assert "no such operator" in failed["error"]["message"]
    assert (built["source"], warm["source"]) == ("compiler", "store")
    assert warm["key"] == built_key
    assert warm["bytes"] > 1000
    said = run("build", f"{warmed.plain}[batch_size=6]", "--dry-run", "--json")
    assert built["key"] == said.document["result"]["key"]
    assert Store(warmed.store).lookup("compile", built["key"]) is not None
    assert "[2/3] grid[batch_size=6]: compiling" in warmed.done.err
    assert "[3/3] grid[batch_size=1]: warm, store" in warmed.done.err


def test_the_record_and_junit_say_the_same(warmed: Warmed) -> None:
    lines = [json.loads(line) for line in warmed.record.read_text().splitlines()]
    assert lines == rows(warmed.done)
    failed, built, warm = ElementTree.parse(warmed.junit).iter("testcase")
    assert [case.attrib["name"] for case in (failed, built, warm)] == [
        line["name"] for line in lines
    ]
    assert failed[0].tag == "failure"
    assert "no such operator" in failed[0].attrib["message"]
    assert (failed[0].text or "").endswith("why it failed")
    assert (list(built), list(warm)) == ([], [])


def test_warm_needs_no_compiler(
    warmed: Warmed, run: Run, record_property: Callable[[str, object], None]
) -> None:
    done = run("prewarm", str(warmed.plain), "--store", str(warmed.store), "--json", **NO_COMPILER)
    assert (done.code, statuses(done)) == (0, ["warm", "warm"])
    result = done.document["result"]
    assert result["counts"] == {"warm": 2}
    cold = rows(warmed.done)[1]["seconds"]
    record_property("counts", f"prewarm: 1 cold program {cold} s, 2 warm {result['seconds']} s")
    human = run("prewarm", str(warmed.plain), "--store", str(warmed.store), **NO_COMPILER)
    header, *table, _, last = human.out.splitlines()
    assert header.split() == ["STATUS", "TIME", "SIZE", "KEY", "PROGRAM"]
    assert [line.split()[-1] for line in table] == ["plain[batch_size=6]", "plain[batch_size=1]"]
    assert last.startswith("2 warm in ")
    assert "\x1b" not in human.out


def test_check_tells_and_touches_nothing(warmed: Warmed, run: Run) -> None:
    before = tree(warmed.store)
    check = ("--check", "--store", str(warmed.store), "--json")
    assert run("prewarm", str(warmed.plain), *check).code == 0
    cold = run("prewarm", str(warmed.grid), *check)
    assert (cold.code, statuses(cold)) == (3, ["cold", "warm", "warm"])
    assert rows(cold)[0]["exit_code"] == 3
    assert tree(warmed.store) == before


def test_two_shards_do_all_of_it_once(warmed: Warmed, run: Run) -> None:
    common = ("--check", "--store", str(warmed.store), "--json")
    taken = []
    for index in range(2):
        env = {"AWS_BATCH_JOB_ARRAY_INDEX": str(index), "AWS_BATCH_JOB_ARRAY_SIZE": "2"}
        done = run("prewarm", str(warmed.grid), str(warmed.plain), *common, **env)
        assert done.document["result"]["shard"]["index"] == index + 1
        assert f"shard {index + 1}/2 (AWS_BATCH_JOB_ARRAY_INDEX={index}" in done.err
        assert len(rows(done)) == 5
        others = [row for row in rows(done) if row["status"] == "skipped"]
        assert {row["reason"] for row in others} <= {"in other shards"}
        taken += [row["name"] for row in rows(done) if row not in others]
    assert sorted(taken) == sorted(
        row.name for row in programs([str(warmed.grid), str(warmed.plain)])
    )


def test_fail_fast_stops(warmed: Warmed, run: Run) -> None:
    done = run("prewarm", str(warmed.grid), "--store", str(warmed.store), "--fail-fast", "--json")
    assert done.code == 6
    assert [(row["status"], row["reason"]) for row in rows(done)] == [
        ("failed", None),
        ("skipped", "not tried after a failure"),
        ("skipped", "not tried after a failure"),
    ]


def test_what_cannot_be_planned_is_isolated_too(warmed: Warmed, run: Run, tmp_path: Path) -> None:
    good = (str(warmed.plain), "--store", str(warmed.store), "--json")
    write_recipe(tmp_path / "a-gone.toml", tmp_path / "no-model")
    write_recipe(tmp_path / "b-typo.toml", tmp_path, "seqlen = 64\n")
    (tmp_path / "c-bad.toml").write_text("schema = 1\n[modle]\n")
    mixed = run("prewarm", str(tmp_path), *good)
    assert (mixed.code, statuses(mixed)) == (6, ["failed", "failed", "failed", "warm", "warm"])
    assert [row["exit_code"] for row in rows(mixed)] == [4, 5, 5, 0, 0]
    assert "seq_len" in rows(mixed)[1]["error"]["hint"]
    alone = run("prewarm", str(tmp_path / "b-typo.toml"), str(tmp_path / "c-bad.toml"))
    assert alone.code == 5


# ---- tiers


@pytest.fixture
def shared(warmed: Warmed, run: Run, tmp_path: Path) -> str:
    """A tier that has both points of `plain`."""
    url = f"file://{tmp_path}/tier"
    common = ("--store", str(warmed.store), "--tier", url, "--json")
    done = run("prewarm", str(warmed.plain), *common, "--push", **NO_COMPILER)
    assert (done.code, statuses(done)) == (0, ["warm", "warm"])
    return url


def test_push_here_is_warm_there(warmed: Warmed, run: Run, shared: str, tmp_path: Path) -> None:
    other = tmp_path / "other"
    at = ("--store", str(other), "--json")
    assert run("prewarm", str(warmed.plain), *at, "--check").code == 3
    seen = run("prewarm", str(warmed.plain), *at, "--tier", shared, "--check")
    assert (seen.code, statuses(seen)) == (0, ["warm", "warm"])
    assert [row["source"] for row in rows(seen)] == [shared, shared]
    left = run("prewarm", str(warmed.plain), *at, "--tier", shared, **NO_COMPILER)
    assert (left.code, statuses(left)) == (0, ["warm", "warm"])
    pushed = run("prewarm", str(warmed.plain), *at, "--tier", shared, "--push", **NO_COMPILER)
    assert (pushed.code, statuses(pushed)) == (0, ["warm", "warm"])
    assert not (other / "v1" / "actions").exists(), "what a tier has stays there"
    pulled = run("prewarm", str(warmed.plain), *at, "--tier", shared, "--pull", **NO_COMPILER)
    assert (pulled.code, statuses(pulled)) == (0, ["pulled", "pulled"])
    assert run("prewarm", str(warmed.plain), *at, "--check").code == 0


def test_require_cached_pulls_and_never_compiles(
    warmed: Warmed, run: Run, shared: str, tmp_path: Path
) -> None:
    at = ("--store", str(tmp_path / "other"), "--json")
    done = run("prewarm", str(warmed.grid), *at, "--tier", shared, "--require-cached")
    assert (done.code, statuses(done)) == (3, ["cold", "pulled", "pulled"])
    without = run("prewarm", str(warmed.plain), *at, "--require-cached")
    assert (without.code, statuses(without)) == (0, ["warm", "warm"])


def test_a_broken_program_in_a_tier_breaks_no_other(
    warmed: Warmed, run: Run, shared: str, tmp_path: Path
) -> None:
    broken = rows(warmed.done)[1]["key"]
    pointer = Path(shared.removeprefix("file://")) / "v1" / "actions" / "compile" / broken
    pointer.chmod(0o644)
    pointer.write_text("{}")
    more = tmp_path / "more.toml"
    more.write_text(warmed.plain.read_text().replace("[6, 1]", "[6, 5, 1]"))
    at = ("--store", str(tmp_path / "other"), "--tier", shared, "--json")
    done = run("prewarm", str(more), *at, "--check")
    assert [row["exit_code"] for row in rows(done)] == [8, 3, 0]
    assert (done.code, statuses(done)) == (6, ["failed", "cold", "warm"])


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--push",), "--push needs a tier"),
        (("--pull",), "--pull needs a tier"),
        (("--check", "--push"), "--check and --push exclude each other"),
        (("--check", "--pull"), "--check and --pull exclude each other"),
        (("--require-cached", "--push"), "--require-cached and --push exclude each other"),
    ],
)
def test_contradictions(run: Run, llama: Path, options: tuple[str, ...], said: str) -> None:
    done = run("prewarm", "smollm2-135m", *options)
    assert done.code == 2
    assert said in done.err


# ---- interruptions and surroundings


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interruption_keeps_what_is_finished(
    warmed: Warmed, llama: Path, tmp_path: Path, number: signal.Signals
) -> None:
    grid = write_recipe(tmp_path / "grid.toml", llama, matrix(1, 7, 6))
    process = subprocess.Popen(
        [
            *(sys.executable, "-m", "neuroncompile", "prewarm", str(grid), "--json"),
            *("--store", str(warmed.store), "--record", str(tmp_path / "record")),
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    assert process.stderr is not None
    for line in process.stderr:
        if line.startswith("compiling "):
            process.send_signal(number)
            break
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    document = json.loads(out)
    assert document["exit_code"] == 130
    lines = [json.loads(line) for line in (tmp_path / "record").read_text().splitlines()]
    assert lines == document["result"]["programs"]
    assert [(line["status"], line["reason"]) for line in lines] == [
        ("warm", None),
        ("skipped", "interrupted"),
        ("skipped", "interrupted"),
    ]


def test_a_read_only_store_is_enough_when_all_is_warm(
    warmed: Warmed,
    run: Run,
    tmp_path: Path,
    read_only: Callable[[Path], None],  # noqa: F811
) -> None:
    store = tmp_path / "store"
    shutil.copytree(warmed.store, store, symlinks=True)
    read_only(store)
    before = tree(store)
    at = ("--store", str(store), "--json")
    for options in ((), ("--check",), ("--require-cached",)):
        done = run("prewarm", str(warmed.plain), *at, *options, **NO_COMPILER)
        assert (done.code, statuses(done)) == (0, ["warm", "warm"]), done.err
    cold = run("prewarm", str(warmed.grid), *at, "--require-cached")
    assert cold.code == 3
    assert tree(store) == before


AS_NOBODY = """
import os, sys
from neuroncompile.cli import main
main(sys.argv[1:])  # imports what the interpreter's own files are needed for
os.setgid(65534)
os.setuid(65534)
sys.exit(main(sys.argv[1:]))
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="takes root to become somebody else")
def test_another_user_without_a_home(warmed: Warmed, llama: Path, run: Run, tmp_path: Path) -> None:
    shutil.copytree(warmed.store, tmp_path / "store", symlinks=True)
    shutil.copytree(llama, tmp_path / "model")
    plain = write_recipe(tmp_path / "plain.toml", tmp_path / "model", matrix(6, 1))
    for place in (tmp_path / "store", tmp_path / "model", tmp_path, *tmp_path.parents):
        if place.stat().st_mode & 1 == 0:
            place.chmod(place.stat().st_mode | 0o055)
    assert run("prewarm", str(plain), "--store", str(tmp_path / "store")).code == 0
    before = tree(tmp_path / "store")
    done = subprocess.run(
        [
            *(sys.executable, "-c", AS_NOBODY, "prewarm", str(plain), "--check"),
            *("--store", str(tmp_path / "store")),
        ],
        capture_output=True,
        text=True,
        env={"PATH": "/nonexistent", "PYTHONPATH": str(ROOT), "HOME": "/nonexistent"},
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("2 warm in ") == 2
    assert tree(tmp_path / "store") == before
