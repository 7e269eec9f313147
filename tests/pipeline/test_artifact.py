"""`run --artifact`: exactly that program, whatever else would be chosen."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import Run, write_llama

ASK = ("the cat", "--max-new-tokens=4", "--json")


def test_the_program_of_the_key_runs(
    run: Run, llama: Path, store_root: Path, built_key: str
) -> None:
    """Its lengths and buckets come from it and not from the defaults."""
    where = ("--store", str(store_root), "--artifact", built_key[:12])
    done = run("run", str(llama), *ASK, *where)
    assert done.code == 0, done.err
    assert done.document["result"]["key"] == built_key
    same = run("run", str(llama), *ASK, *where, "--seq-len=64", "--target=cpu:x86-64-v3")
    assert same.document["result"]["key"] == built_key, same.err


@pytest.mark.parametrize(
    ("option", "field", "values"),
    [
        ("--seq-len=32", "neuron.seq_len", ("64", "32")),
        ("--batch-size=2", "neuron.batch_size", ("1", "2")),
        ("--dtype=bfloat16", "neuron.torch_dtype", ("float32", "bfloat16")),
        ("-O2", "optlevel", ("1", "2")),
        ("--target=cpu:x86-64-v2", "target.isa", ("x86-64-v3", "x86-64-v2")),
    ],
)
def test_what_contradicts_it_is_refused_field_by_field(
    run: Run,
    llama: Path,
    store_root: Path,
    built_key: str,
    option: str,
    field: str,
    values: tuple[str, str],
) -> None:
    where = ("--store", str(store_root), "--artifact", built_key)
    done = run("run", str(llama), *ASK, *where, option)
    assert done.code == 5, done.err
    error = done.document["error"]
    assert "was fixed at build" in error["message"]
    told = {d["field"]: (str(d["left"]), str(d["right"])) for d in error["details"]["differences"]}
    assert told[field] == values


def test_another_model_of_the_same_config_runs(
    run: Run, store_root: Path, built_key: str, tmp_path: Path
) -> None:
    tuned = write_llama(tmp_path / "tuned", seed=1)
    where = ("--store", str(store_root), "--artifact", built_key)
    done = run("run", str(tuned), *ASK, *where)
    assert done.document["result"]["key"] == built_key, done.err


def test_another_model_is_refused(
    run: Run, store_root: Path, built_key: str, tmp_path: Path
) -> None:
    other = write_llama(tmp_path / "other", intermediate_size=128)
    done = run("run", str(other), *ASK, "--store", str(store_root), "--artifact", built_key)
    assert done.code == 5
    assert "model.intermediate_size 96 → 128" in done.document["error"]["message"]


def test_what_is_no_program_is_refused(
    run: Run, llama: Path, store_root: Path, built_key: str
) -> None:
    assert run("run", str(llama), *ASK, "--artifact", "deadbeef").code == 7
    rows = run("store", "ls", "--kind=graph", "--store", str(store_root), "--json").document
    graph = rows["result"]["artifacts"][0]["key"]
    done = run("run", str(llama), *ASK, "--store", str(store_root), "--artifact", graph)
    assert done.code == 5
    assert "--kind compile" in done.document["error"]["hint"]
