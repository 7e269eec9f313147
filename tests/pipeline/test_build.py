"""Builds for real: hits, misses, reuse, interruption, and what a build leaves behind."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from neuroncompile.store import Store
from tests.conftest import ROOT, SMALL, Run, write_llama

ONE_BUCKET = ("--seq-len=16",)
"""Three graphs: a layer of each submodel and the edge."""


def start(*args: str, **env: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "neuroncompile", *args],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT), **env},
        start_new_session=True,
        # A shell's background job ignores SIGINT, and so would everything below it.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )


def artifacts(store: Path, kind: str) -> list[str]:
    directory = store / "v1" / "actions" / kind
    return sorted(p.name for p in directory.iterdir()) if directory.is_dir() else []


def wait_for(condition: object, seconds: float = 240) -> None:
    assert callable(condition)
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "timed out"
        time.sleep(0.05)


def test_a_second_build_is_a_hit_that_changes_nothing(
    run: Run, llama: Path, store_root: Path, built_key: str
) -> None:
    blobs = store_root / "v1" / "blobs" / "sha256"
    before = {p.name: (p.stat().st_ino, p.stat().st_mtime_ns) for p in blobs.iterdir()}
    done = run("build", str(llama), *SMALL, "--store", str(store_root), "--json")
    result = done.document["result"]
    assert (done.code, result["hit"], result["key"]) == (0, True, built_key)
    assert result["compiled"] == []
    assert {p.name: (p.stat().st_ino, p.stat().st_mtime_ns) for p in blobs.iterdir()} == before


def test_a_fine_tune_is_a_hit(run: Run, store_root: Path, built_key: str, tmp_path: Path) -> None:
    other = write_llama(tmp_path, seed=1)
    done = run("build", str(other), *SMALL, "--store", str(store_root), "--check", "--json")
    assert (done.code, done.document["result"]["key"]) == (0, built_key)


@pytest.mark.parametrize(
    ("option", "field"),
    [
        ("--seq-len=65", "neuron.seq_len"),
        ("--dtype=bfloat16", "neuron.torch_dtype"),
        ("--batch-size=5", "neuron.batch_size"),
        ("--target=cpu:x86-64-v2", "target.isa"),
        ("-O2", "optlevel"),
        ("--set=max_context_length=32", "neuron.max_context_length"),
    ],
)
def test_what_changes_the_program_is_a_miss_with_a_reason(
    run: Run, llama: Path, store_root: Path, built_key: str, option: str, field: str
) -> None:
    small = [o for o in SMALL if o.split("=")[0] != option.split("=")[0]]
    if option.startswith(("--seq-len", "--set")):
        small = [o for o in small if "buckets" not in o]
    done = run("build", str(llama), *small, option, "--store", str(store_root), "--check", "--json")
    assert done.code == 3
    nearest = done.document["result"]["nearest"]
    assert field in [d["field"] for d in nearest["differences"]]


def test_another_toolchain_version_is_a_miss(
    run: Run, llama: Path, store_root: Path, built_key: str, tmp_path: Path
) -> None:
    frozen = tmp_path / "cpu.toml"
    assert run("toolchain", "freeze", "-o", str(frozen)).code == 0
    common = ("build", str(llama), *SMALL, "--store", str(store_root), "--json", "--toolchain")
    assert run(*common, str(frozen), "--check").document["result"]["key"] == built_key
    text = frozen.read_text()
    frozen.write_text(text.replace("2.13.0", "2.13.9"))
    missed = run(*common, str(frozen), "--check")
    assert missed.code == 3
    nearest = missed.document["result"]["nearest"]
    assert nearest["key"] == built_key
    assert [d["field"] for d in nearest["differences"]] == ["toolchain.torch"]
    refused = run(*common, str(frozen))
    assert refused.code == 5
    assert "2.13.9" in refused.document["error"]["message"]
    assert "2.13.0" in refused.document["error"]["message"]


def test_the_key_is_the_same_without_torch_given_the_frozen_toolchain(
    run: Run, llama: Path, store_root: Path, built_key: str, tmp_path: Path
) -> None:
    frozen = tmp_path / "cpu.toml"
    assert run("toolchain", "freeze", "-o", str(frozen)).code == 0
    bare = tmp_path / "site"
    bare.mkdir()
    import typer

    packages = Path(typer.__file__).parents[1]
    for name in ("typer", "typing_extensions.py", "annotated_doc", "shellingham"):
        if (packages / name).exists():
            os.symlink(packages / name, bare / name)
    done = subprocess.run(
        [
            *(sys.executable, "-S", "-m", "neuroncompile", "build", str(llama), *SMALL),
            *("--check", "--store", str(store_root), "--toolchain", str(frozen), "--json"),
        ],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={"PATH": os.environ["PATH"], "PYTHONPATH": f"{ROOT}:{bare}", "HOME": "/nonexistent"},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert built_key in done.stdout


def test_the_key_is_the_same_from_anywhere(
    run: Run,
    llama: Path,
    store_root: Path,
    built_key: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    moved = tmp_path / "elsewhere"
    shutil.copytree(llama, moved)
    monkeypatch.chdir(tmp_path)
    done = run(
        *("build", "./elsewhere", *SMALL, "--store", str(store_root), "--check", "--json"),
        HOME=str(tmp_path),
        TZ="Asia/Tokyo",
        LANG="de_DE.UTF-8",
        USER="someone",
        PYTHONHASHSEED="7",
    )
    assert (done.code, done.document["result"]["key"]) == (0, built_key)


def test_require_cached_never_compiles(run: Run, llama: Path, tmp_path: Path) -> None:
    done = run("build", str(llama), *SMALL, "--store", str(tmp_path), "--require-cached")
    assert done.code == 3
    assert artifacts(tmp_path, "graph") == []


def test_new_buckets_compile_only_what_is_new(
    run: Run, llama: Path, store_root: Path, built_key: str
) -> None:
    done = run(
        *("build", str(llama), "--seq-len=64", "--context-encoding-buckets=16,32,64"),
        *("--token-generation-buckets=64", "--store", str(store_root), "--json"),
    )
    result = done.document["result"]
    assert done.code == 0, done.err
    assert result["key"] != built_key
    assert len(result["compiled"]) == 1
    assert len(result["reused"]) == 4


def test_killed_and_built_again(run: Run, llama: Path, tmp_path: Path) -> None:
    process = start("build", str(llama), *ONE_BUCKET, "--store", str(tmp_path), "--jobs=1")
    wait_for(lambda: artifacts(tmp_path, "graph"))
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    kept = len(artifacts(tmp_path, "graph"))
    assert artifacts(tmp_path, "compile") == []
    done = run("build", str(llama), *ONE_BUCKET, "--store", str(tmp_path), "--json")
    result = done.document["result"]
    assert done.code == 0, done.err
    assert len(result["reused"]) >= kept >= 1
    assert len(result["reused"]) + len(result["compiled"]) == 3


def test_ctrl_c_says_what_is_kept(llama: Path, tmp_path: Path) -> None:
    process = start("build", str(llama), *ONE_BUCKET, "--store", str(tmp_path), "--jobs=1")
    wait_for(lambda: artifacts(tmp_path, "graph"))
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=30)
    assert process.returncode == 130, err
    assert f"of 3 graphs are kept in {tmp_path}" in err
    assert "goes on from there" in err
    assert artifacts(tmp_path, "compile") == []
    assert list((tmp_path / "v1" / "tmp").iterdir()) == []


def test_two_builds_of_one_key_compile_once(llama: Path, tmp_path: Path) -> None:
    common = ("build", str(llama), *ONE_BUCKET, "--store", str(tmp_path), "--json")
    both = [start(*common), start(*common)]
    outputs = [p.communicate(timeout=600) for p in both]
    results = [json.loads(out)["result"] for out, _ in outputs]
    assert sorted(r["hit"] for r in results) == [False, True]
    assert sorted(len(r["compiled"]) for r in results) == [0, 3]
    assert len({r["key"] for r in results}) == 1


def test_a_full_disk_is_exit_7_and_loses_nothing(run: Run, llama: Path, tmp_path: Path) -> None:
    mount = tmp_path / "small"
    mount.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=200k", "none", str(mount)])
    if mounted.returncode:
        pytest.skip("mounting a small file system needs more rights")
    try:
        done = run("build", str(llama), *ONE_BUCKET, "--store", str(mount))
        assert done.code == 7, done.err
        assert "free space" in done.err
        assert artifacts(mount, "compile") == []
        assert run("store", "ls", "--store", str(mount)).code == 0
        assert [p for p in (mount / "v1" / "tmp").iterdir() if p.suffix != ".broken"] == []
    finally:
        subprocess.run(["umount", str(mount)], check=True)


def test_no_compiler_is_said_before_anything_else(run: Run, llama: Path, tmp_path: Path) -> None:
    done = run("build", str(llama), *ONE_BUCKET, "--store", str(tmp_path), PATH="/nonexistent")
    assert done.code == 5
    assert "g++" in done.err
    assert "apt-get install g++" in done.err
    recipe = run("build", "smollm2-135m", "--store", str(tmp_path / "new"), PATH="/nonexistent")
    assert recipe.code == 5
    assert not (tmp_path / "new" / "models").exists()


@pytest.mark.slow
def test_programs_that_share_graphs_compile_each_once(llama: Path, tmp_path: Path) -> None:
    common = ("--seq-len=32", "--token-generation-buckets=32", "--store", str(tmp_path), "--json")
    lists = ("--context-encoding-buckets=16,32", "--context-encoding-buckets=32")
    both = [start("build", str(llama), buckets, *common) for buckets in lists]
    results = [json.loads(p.communicate(timeout=600)[0])["result"] for p in both]
    compiled = [name for result in results for name in result["compiled"]]
    assert len(compiled) == len(set(compiled)) == len(artifacts(tmp_path, "graph")) == 4
    assert len(results[0]["compiled"]) + len(results[0]["reused"]) == 4
    assert len(results[1]["compiled"]) + len(results[1]["reused"]) == 3


def test_a_rejection_is_remembered_for_a_day_and_can_be_retried(
    run: Run, llama: Path, store_root: Path, built_key: str, tmp_path: Path
) -> None:
    """The compiler is not asked again for what it is sure to refuse, nor held back for ever."""
    shutil.copytree(store_root, tmp_path / "store", symlinks=True)
    store = Store(tmp_path / "store")
    program = store.find(built_key)
    held = {d.digest for d in program.layers}
    graph = next(a for a in store.artifacts("graph") if held.issuperset(d.digest for d in a.layers))
    store.remove(program)
    store.remove(graph)
    store.remember_failure("graph", graph.key, "UnsupportedOperator: aten.example", log=b"why\n")
    command = ("build", str(llama), *SMALL, "--store", str(tmp_path / "store"), "--json")
    refused = run(*command)
    error = refused.document["error"]
    assert refused.code == 6, refused.err
    assert "UnsupportedOperator: aten.example" in error["message"]
    assert "--retry-failed" in error["hint"]
    assert Path(error["details"]["log"]).read_bytes() == b"why\n"
    assert store.lookup("graph", graph.key) is None, "nothing was compiled"
    done = run(*command, "--retry-failed")
    assert done.code == 0, done.err
    assert len(done.document["result"]["compiled"]) == 1
    assert store.failure("graph", graph.key) is None
