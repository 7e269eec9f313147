"""`store ls`, `store show`, `store path`, `explain`."""

from __future__ import annotations

from pathlib import Path

from tests.conftest import SMALL, Run


def test_ls_shows_the_program_and_its_graphs(run: Run, store_root: Path, built_key: str) -> None:
    rows = run("store", "ls", "--store", str(store_root), "--json").document["result"]["artifacts"]
    programs = {r["key"]: r for r in rows if r["kind"] == "compile"}
    assert "LlamaForCausalLM" in programs[built_key]["what"]
    assert "seq 64" in programs[built_key]["what"]
    assert programs[built_key]["bytes"] > 100_000
    assert sum(r["kind"] == "graph" for r in rows) >= 4
    text = run("store", "ls", "--kind", "compile", "--store", str(store_root)).out
    assert text.splitlines()[0].split() == [*("KEY", "KIND", "WHAT", "SIZE", "UNIQUE", "USED")]
    assert built_key[:12] in text


def test_ls_of_an_empty_store(run: Run, tmp_path: Path) -> None:
    done = run("store", "ls", "--store", str(tmp_path / "none"))
    assert (done.code, done.out) == (0, "")
    assert "holds no artifacts" in done.err
    assert not (tmp_path / "none").exists(), "looking creates nothing"


def test_show_gives_spec_files_and_provenance(run: Run, store_root: Path, built_key: str) -> None:
    shown = run("store", "show", built_key[:8], "--store", str(store_root), "--json").document
    result = shown["result"]
    assert result["key"] == built_key
    assert result["spec"]["neuron"]["seq_len"] == 64
    assert "program.json" in [f["title"] for f in result["files"]]
    assert result["provenance"]["seconds"] > 0
    assert "/" not in str(result["spec"]), "no path enters a spec"


def test_path_is_a_directory_with_the_program(run: Run, store_root: Path, built_key: str) -> None:
    done = run("store", "path", f"sha256:{built_key}", "--store", str(store_root))
    assert (Path(done.out.strip()) / "program.json").is_file()


def test_an_unknown_key_is_exit_7(run: Run, store_root: Path, built_key: str) -> None:
    for key in ("deadbeef", "0123", "no-such-ref"):
        done = run("store", "show", key, "--store", str(store_root))
        assert done.code == 7, (key, done.err)
        assert "neuroncompile store ls" in done.err


def test_explain_names_the_field(run: Run, llama: Path, store_root: Path, built_key: str) -> None:
    other = run(
        *("build", str(llama), *SMALL, "--batch-size=2", "--store", str(store_root), "--json")
    ).document["result"]["key"]
    done = run("explain", built_key, other, "--store", str(store_root), "--json")
    first, *others = done.document["result"]["differences"]
    assert first == {"field": "neuron.batch_size", "left": 1, "right": 2, "follows": False}
    assert {d["field"] for d in others} == {
        "neuron.is_continuous_batching",
        "neuron.tkg_batch_size",
    }
    assert all(d["follows"] for d in others)
    shown = run("explain", built_key, other, "--store", str(store_root)).out
    assert "1 field differs, and 2 that follow" in shown
    single = run("explain", built_key[:10], "--store", str(store_root))
    assert single.code == 0
    assert "FIELD" in single.out


def test_a_misspelt_kind_is_refused(run: Run, store_root: Path) -> None:
    done = run("store", "ls", "--kind", "compiles", "--store", str(store_root))
    assert done.code == 5
    assert "compile, graph, pack or shard" in done.err
