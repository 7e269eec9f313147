"""`store export` and `store import`, as a person and a script meet them."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import struct
import subprocess
import sys
import tarfile
import termios
from pathlib import Path
from typing import Any

import pytest

from neuroncompile.store import Layer, Store
from tests.conftest import ROOT, SMALL, Run


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """Two artifacts, one of them named."""
    store = Store(tmp_path / "store")
    for number in range(2):
        spec = {"schema": 1, "kind": "pack", "dtype": "float32", "n": number}
        files = [Layer("weights.safetensors", data=b"%d" % number * 2000)]
        artifact = store.publish("pack", spec, files, provenance={"model": "m"})
    store.set_ref("team/weights", artifact)
    return store


def shell(script: str, **env: str) -> subprocess.CompletedProcess[str]:
    """Run a shell line with `neuroncompile` on its path."""
    line = f'neuroncompile() {{ "{sys.executable}" -m neuroncompile "$@"; }}\nset -o pipefail\n'
    return subprocess.run(
        ["bash", "-c", line + script],
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, "PYTHONPATH": str(ROOT), **env},
    )


def test_export_to_import_through_a_pipe_is_a_hit(
    run: Run, llama: Path, store_root: Path, built_key: str, tmp_path: Path
) -> None:
    """A host that never compiled has the program, and so does one that gets it by file."""
    options = " ".join([str(llama), *SMALL])
    done = shell(
        f"neuroncompile store export {built_key} --store {store_root} "
        f"| neuroncompile store import - --store {tmp_path}/other && "
        f"neuroncompile build {options} --store {tmp_path}/other --check"
    )
    assert done.returncode == 0, done.stderr
    assert "1 new artifact" in done.stdout
    assert "trust its sender" in done.stderr, "it is native code, and that is said"
    tar = tmp_path / "program.tar"
    assert (
        run("store", "export", built_key[:12], "-o", str(tar), "--store", str(store_root)).code == 0
    )
    assert run("store", "import", str(tar), "--store", str(tmp_path / "third")).code == 0
    answer = run("run", str(llama), "the cat", *SMALL, "--require-cached", "--max-new-tokens=4",
                 "--json", "--store", str(tmp_path / "third"))  # fmt: skip
    assert answer.code == 0, answer.err
    assert answer.document["result"]


def test_the_program_alone_is_enough(
    run: Run, llama: Path, store_root: Path, built_key: str, tmp_path: Path
) -> None:
    run("store", "export", built_key, "-o", f"{tmp_path}/dir/", "--store", str(store_root))
    done = run("store", "import", f"{tmp_path}/dir", "--store", f"{tmp_path}/other", "--json")
    [artifact] = done.document["result"]["artifacts"]
    assert (artifact["kind"], artifact["key"]) == ("compile", built_key)
    checked = run("build", str(llama), *SMALL, "--store", f"{tmp_path}/other", "--check")
    assert checked.code == 0, checked.err


def test_documents(run: Run, store: Store, tmp_path: Path) -> None:
    tar = str(tmp_path / "a.tar")
    done = run("store", "export", "--all", "-o", tar, "--json", "--store", str(store.root))
    result = done.document["result"]
    assert done.document["command"] == "store export"
    assert result["path"] == tar
    assert len(result["artifacts"]) == 2
    assert sorted(n for a in result["artifacts"] for n in a["names"]) == ["team/weights"]
    with tarfile.open(tar) as archive:
        sizes = [m.size for m in archive if m.name.startswith("blobs/sha256/")]
    assert (len(sizes), sum(sizes)) == (result["blobs"], result["bytes"])
    other = str(tmp_path / "other")
    first = run("store", "import", tar, "--json", "--store", other).document
    assert (first["command"], first["error"], first["warnings"]) == ("store import", None, [])
    assert (first["result"]["new"], first["result"]["already_here"]) == (2, 0)
    again = run("store", "import", tar, "--json", "--store", other).document["result"]
    assert (again["new"], again["already_here"], again["new_bytes"]) == (0, 2, 0)
    assert again["already_here_bytes"] == first["result"]["new_bytes"] > 4000


def test_layers_below_are_exported_and_not_taken_for_here(
    run: Run, store: Store, tmp_path: Path
) -> None:
    tar, own = str(tmp_path / "a.tar"), str(tmp_path / "own")
    below = {"NEURONCOMPILE_LAYERS": str(store.root)}
    done = run("store", "export", "team/weights", "-o", tar, "--store", own, **below)
    assert done.code == 0, done.err
    taken = run("store", "import", tar, "--json", "--store", own, **below)
    assert taken.document["result"]["new"] == 1
    assert len(list(Store(Path(own)).artifacts())) == 1


def test_words(run: Run, store: Store, tmp_path: Path) -> None:
    tar = str(tmp_path / "a.tar")
    done = run("store", "export", "team/weights", "-o", tar, "--store", str(store.root))
    assert done.out.startswith("exported 1 artifact in ")
    assert tar in done.out
    other = str(tmp_path / "other")
    first = run("store", "import", tar, "--store", other)
    assert "as team/weights" in first.err
    assert first.out.startswith("imported 1 new artifact, 0 already here; 2.")
    again = run("store", "import", tar, "--store", other)
    assert again.out.startswith("imported 0 new artifacts, 1 already here; 0 B new, 2.")
    quiet = run("store", "import", tar, "-q", "--store", other)
    assert quiet.err == ""


def test_a_name_that_is_taken_is_said(run: Run, store: Store, tmp_path: Path) -> None:
    tar = str(tmp_path / "a.tar")
    run("store", "export", "team/weights", "-o", tar, "--store", str(store.root))
    [other] = [a for a in store.artifacts() if a != store.find("team/weights")]
    store.set_ref("team/weights", other)
    done = run("store", "import", tar, "--store", str(store.root))
    assert done.code == 0
    assert "is not named 'team/weights': it names another artifact here" in done.err


def test_a_pipe_carries_nothing_but_the_archive(store: Store, tmp_path: Path) -> None:
    done = shell(
        f"neuroncompile store export --kind pack --store {store.root} > {tmp_path}/a.tar && "
        f"neuroncompile store export --all -o - --store {store.root} | cmp - {tmp_path}/a.tar && "
        f"neuroncompile store import <(cat {tmp_path}/a.tar) --store {tmp_path}/other && "
        f"mkfifo {tmp_path}/fifo && "
        f"(cat {tmp_path}/fifo | cmp - {tmp_path}/a.tar & "
        f"neuroncompile store export --all -o {tmp_path}/fifo --store {store.root} && wait $!)"
    )
    assert done.returncode == 0, done.stderr
    assert "2 new artifacts" in done.stdout


def test_a_reader_that_goes_is_exit_7(store: Store, tmp_path: Path) -> None:
    spec = {"schema": 1, "kind": "pack", "dtype": "float32", "n": 9}
    store.publish("pack", spec, [Layer("w.safetensors", data=bytes(1_000_000))])
    done = shell(
        f"(neuroncompile store export --all --store {store.root}; echo $? >{tmp_path}/code) "
        "| head -c 1000 >/dev/null"
    )
    assert (tmp_path / "code").read_text() == "7\n"
    assert "whoever read it has gone" in done.stderr
    assert "Traceback" not in done.stderr
    assert "Exception ignored" not in done.stderr


def test_a_full_stdout_is_exit_7(store: Store) -> None:
    done = shell(f"neuroncompile store export --all --store {store.root} 2>&1 >/dev/full; echo $?")
    assert done.stdout.endswith("7\n"), done.stdout
    assert "no space left" in done.stdout
    assert "Traceback" not in done.stdout + done.stderr


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["export"], 2, "--all"),
        (["export", "deadbeef", "--all", "-o", "x.tar"], 2, "KEY and --all"),
        (["export", "--all", "--json"], 2, "-o FILE"),
        (["export", "deadbeef", "-o", "x.tar"], 7, "store ls"),
        (
            ["export", "--kind", "graph", "-o", "x.tar"],
            7,
            "no artifacts of the kind 'graph'; it has pack",
        ),
        (["export", "--all", "-o", "no/such/x.tar"], 7, "No such file"),
        (["import"], 2, "PATH"),
        (["import", "no-such.tar"], 7, "no-such.tar cannot be opened"),
        (["import", "."], 7, "not an image layout"),
        (["import", "/dev/null"], 7, "is empty"),
    ],
    ids=str,
)
def test_what_cannot_be_is_refused(
    run: Run, store: Store, tmp_path: Path, arguments: list[str], code: int, words: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    place = tmp_path / "empty"
    place.mkdir()
    monkeypatch.chdir(place)
    done = run("store", *arguments, "--store", str(store.root))
    assert done.code == code, done.err + done.out
    assert words in done.err + done.out
    assert os.listdir(place) == []


def test_a_pickle_is_exit_9(run: Run, tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    spec = {"schema": 1, "kind": "pack", "n": 0}
    artifact = store.publish("pack", spec, [Layer("model.pt", data=b"\x80\x04.")])
    tar = str(tmp_path / "a.tar")
    run("store", "export", artifact.key, "-o", tar, "--store", str(store.root))
    refused = run("store", "import", tar, "--store", str(tmp_path / "other"))
    assert refused.code == 9
    assert "'model.pt'" in refused.err
    assert artifact.key[:12] in refused.err
    assert "--trust" in refused.err
    document = run("store", "import", tar, "--json", "--store", str(tmp_path / "other")).document
    assert document["exit_code"] == 9
    assert document["error"]["type"] == "TrustError"
    assert run("store", "import", tar, "--trust", "--store", str(tmp_path / "other")).code == 0


def test_help_says_what_an_import_means(run: Run) -> None:
    text = " ".join(run("store", "import", "--help").out.split())
    assert "native code that runs when it is loaded" in text
    assert "without --trust" in text
    assert "export" in run("store", "--help").out


def test_no_terminal_gets_a_tar(store: Store) -> None:
    for arguments, words in (
        (["export", "--all"], b"would go to the terminal"),
        (["import", "-"], b"would come from the terminal"),
    ):
        code, out = on_a_terminal("store", *arguments, "--store", str(store.root))
        assert code == 2
        assert words in out


def test_progress_moves_on_a_terminal(store: Store, tmp_path: Path) -> None:
    spec = {"schema": 1, "kind": "pack", "dtype": "float32", "n": 9}
    store.publish("pack", spec, [Layer("w.safetensors", data=bytes(30_000_000))])
    tar = str(tmp_path / "a.tar")
    code, out = on_a_terminal("store", "export", "--all", "-o", tar, "--store", str(store.root))
    assert code == 0, out
    assert b"exporting" in out
    assert b" of 30.0 MB" in out
    code, out = on_a_terminal("store", "import", tar, "--store", str(tmp_path / "other"))
    assert code == 0, out
    assert b"reading" in out


def on_a_terminal(*arguments: str) -> tuple[int, bytes]:
    """Exit code and everything shown."""
    pid, terminal = pty.fork()
    if pid == 0:  # pragma: no cover
        os.environ.update(PYTHONPATH=str(ROOT), TERM="xterm")
        fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("4H", 24, 80, 0, 0))
        os.execv(sys.executable, [sys.executable, "-m", "neuroncompile", *arguments])
    shown = b""
    while True:
        try:
            data = os.read(terminal, 65536)
        except OSError:  # the child has closed it
            break
        if not data:
            break
        shown += data
    os.close(terminal)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), shown


def test_a_hostile_spec_does_not_break_listings(run: Run, tmp_path: Path) -> None:
    """What came in from elsewhere may describe itself in any words."""
    from tests.store.archives import Forgery

    for number, words in enumerate(
        [
            {"kind": "compile"},
            {"kind": "compile", "neuron": 1, "target": [], "model": None},
            {"kind": "graph", "region": "\x1b]0;title\x07"},
            {"kind": "pack", "dtype": {"a": "\x1b[31m"}},
            {"kind": "novel"},
        ]
    ):
        path = tmp_path / f"{number}.tar"
        path.write_bytes(Forgery(spec={"schema": 1, "n": number, **words}).tar())
        assert run("store", "import", str(path), "--store", str(tmp_path / "s")).code == 0
    for arguments in (["ls"], ["ls", "--json"]):
        done = run("store", *arguments, "--store", str(tmp_path / "s"))
        assert done.code == 0, done.err
        assert "\x1b" not in done.out
    rows: list[Any] = json.loads(done.out)["result"]["artifacts"]
    assert len(rows) == 5
    for row in rows:
        shown = run("store", "show", row["key"], "--store", str(tmp_path / "s"))
        assert shown.code == 0, shown.err
        assert "\x1b" not in shown.out
