"""A lock file: what it pins, what it refuses, and what it leaves alone."""

from __future__ import annotations

import json
import sys
from contextlib import closing
from pathlib import Path

import pytest

from neuroncompile.config.lock import read_lock
from neuroncompile.errors import ConfigError, ToolchainError
from neuroncompile.output import Output
from neuroncompile.pipeline.build import preflight
from neuroncompile.pipeline.request import BuildRequest
from neuroncompile.pipeline.sharing import Tiers
from neuroncompile.settings import load_settings
from tests.conftest import Done, Run

SDK = "--toolchain=sdk-2.29"


class Place:
    """A directory with a lock file of its own."""

    def __init__(self, run: Run, model: Path, root: Path) -> None:
        self.run, self.model, self.root, self.lock = run, model, root, root / "neuroncompile.lock"

    def __call__(self, *args: str) -> Done:
        store = str(self.root / "store")
        return self.run("--store", store, *args, NEURONCOMPILE_LOCK=str(self.lock))

    def write(self, *more: str) -> Done:
        return self("lock", str(self.model), "--target=trn2", "--set=seq_len=64", SDK, *more)

    def check(self, *more: str) -> Done:
        args = ("--target=trn2", "--set=seq_len=64", "--dry-run", "--json", *more)
        return self("build", str(self.model), *args)


@pytest.fixture
def place(run: Run, llama: Path, tmp_path: Path) -> Place:
    return Place(run, llama, tmp_path)


def test_locked_build_takes_the_toolchain_and_the_key(place: Place) -> None:
    assert place.write().code == 0
    entry = read_lock(place.lock)[str(place.model)]
    (key,) = entry.programs
    assert entry.toolchain["packages"]["neuronx-cc"] == "2.24.8799.0"
    done = place.check("--locked")
    assert done.code == 0, done.err
    assert done.document["result"]["key"] == key
    assert place.check().document["result"]["key"] == key  # the lock is a layer without --locked


@pytest.mark.parametrize(
    ("more", "field"),
    [
        (("--set=seq_len=128",), "neuron.context_encoding_buckets"),
        (("--set=batch_size=2",), "neuron.batch_size"),
        (("--toolchain=sdk-2.28",), "toolchain.libneuronxla"),
        (("-O3",), "optlevel"),
    ],
    ids=lambda value: str(value),
)
def test_another_key_is_refused_by_its_field(
    place: Place, more: tuple[str, ...], field: str
) -> None:
    place.write()
    done = place.check("--locked", *more)
    assert done.code == 5
    error = done.document["error"]
    assert error["details"]["field"] == field
    assert f"neuroncompile lock {place.model}" in error["hint"]
    assert place.check(*more).code == 0


def test_toolchain_that_only_the_lock_names_lets_a_model_be_fetched(place: Place) -> None:
    """The check before a download asks for the toolchain that the build will have."""
    place.write()
    settings = load_settings(
        store=place.root / "store",
        environ={
            "NEURONCOMPILE_LOCK": str(place.lock),
            "NEURONCOMPILE_NEURON_PYTHON": sys.executable,
        },
    )
    request = BuildRequest(str(place.model), target="trn2")
    with closing(Tiers(settings, Output())) as tiers:
        preflight(request, settings, tiers)()
        with pytest.raises(ToolchainError):
            preflight(request._replace(unlocked=True), settings, tiers)()


def test_another_model_is_refused(place: Place, tmp_path: Path) -> None:
    place.write()
    document = json.loads(place.lock.read_text())
    entry = document["entries"][str(place.model)]
    (key,) = entry["programs"]
    entry["programs"] = {"0" * 64: {**entry["programs"][key], "model": "sha256:" + "0" * 64}}
    place.lock.write_text(json.dumps(document))
    done = place.check("--locked")
    assert done.code == 5
    assert done.document["error"]["details"]["field"] == "model"


def test_no_lock_and_no_entry(place: Place) -> None:
    done = place.check("--locked", SDK)
    assert done.code == 5
    assert done.document["error"]["details"]["field"] == "lock"
    place.lock.write_text('{"schema": 1, "entries": {}}')
    assert "no entry" in place.check("--locked", SDK).document["error"]["message"]
    assert place.check(SDK).code == 0


def test_check_tells_and_writes_nothing(place: Place) -> None:
    assert place.write("--check").code == 3
    assert not place.lock.exists()
    assert place.write().code == 0
    before = place.lock.read_bytes()
    assert place.write("--check").code == 0
    assert place("lock", str(place.model), "--target=trn2", SDK, "--check").code == 3
    assert place.lock.read_bytes() == before


def test_other_entries_stay(place: Place) -> None:
    place.write()
    document = json.loads(place.lock.read_text())
    document["entries"]["org/other"] = document["entries"][str(place.model)]
    place.lock.write_text(json.dumps(document))
    assert place("lock", str(place.model), "--target=trn2", "--set=seq_len=32", SDK).code == 0
    after = json.loads(place.lock.read_text())["entries"]
    assert after["org/other"] == document["entries"]["org/other"]
    assert after[str(place.model)] != document["entries"][str(place.model)]


def test_every_point_of_a_matrix(place: Place, tmp_path: Path) -> None:
    recipe = tmp_path / "both.toml"
    recipe.write_text(
        f'schema = 1\n[model]\nref = "{place.model}"\n[target]\nplatform = "trn2"\n'
        '[config]\nseq_len = 64\n[matrix]\n"config.batch_size" = [1, 2]\n'
        '[toolchain]\nsdk = "2.29"\n'
    )
    assert place("lock", str(recipe)).code == 0
    programs = read_lock(place.lock)[str(recipe)].programs
    assert len(programs) == 2
    for row in programs.values():
        done = place("build", str(row["name"]), "--locked", "--dry-run", "--json")
        assert done.code == 0, done.err
        assert done.document["result"]["key"] in programs


@pytest.mark.parametrize(
    "text", ["", "[]", '{"schema": 2}', '{"schema": 1}', "\x00", '{"schema":1,"entries":{"a":1}}']
)
def test_broken_file_is_said_and_kept(place: Place, text: str) -> None:
    place.lock.write_text(text)
    with pytest.raises(ConfigError, match="not a lock file"):
        read_lock(place.lock)
    assert place.check(SDK).code == 5
    assert place.write().code == 5
    assert place.lock.read_text() == text
