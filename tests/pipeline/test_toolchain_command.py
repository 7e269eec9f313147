"""Toolchains by name, by interpreter, and of the release table."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from tests.conftest import Run
from tests.standins.toolchain import VERSIONS, StandIn


@pytest.fixture(scope="module")
def toolchain(tmp_path_factory: pytest.TempPathFactory) -> StandIn:
    return StandIn(tmp_path_factory.mktemp("sdk") / "venv")


def test_ls_has_this_interpreter_and_every_sdk(run: Run) -> None:
    rows = {row["name"]: row for row in run("toolchain", "ls", "--json").document["result"]}
    assert rows["this interpreter"]["backend"] == "cpu"
    assert rows["sdk-2.28.1"]["targets"] == "trn1, trn1n, inf2, trn2"
    assert rows["sdk-2.29.0"]["targets"] == "trn2, trn3"
    assert rows["sdk-2.29.1"]["packages"]["neuronx-cc"] == "2.24.8799.0"


def test_freeze_asks_the_interpreter(run: Run, toolchain: StandIn, tmp_path: Path) -> None:
    file = tmp_path / "sdk.toml"
    done = run("toolchain", "freeze", f"--python={toolchain.python}", "-o", str(file))
    assert done.code == 0, done.err
    table = tomllib.loads(file.read_text())
    assert table["packages"] == VERSIONS
    assert "python" not in table  # a file that is committed names no machine


def test_named_one_keeps_its_interpreter(run: Run, toolchain: StandIn) -> None:
    done = run("toolchain", "freeze", f"--python={toolchain.python}", "--name=neuron", "--json")
    assert done.code == 0, done.err
    rows = {row["name"]: row for row in run("toolchain", "ls", "--json").document["result"]}
    assert rows["neuron"]["python"] == toolchain.python
    assert run("toolchain", "show", "neuron", "--json").document["result"]["packages"] == VERSIONS


@pytest.mark.parametrize("python", ["/nowhere/python", "/", "/bin/true"])
def test_interpreter_that_is_none(run: Run, python: str) -> None:
    done = run("toolchain", "freeze", f"--python={python}", "--json")
    assert done.code == 5
    assert done.document["error"]["details"]["field"] == "toolchain.python"


def test_interpreter_without_an_sdk(run: Run, tmp_path: Path) -> None:
    import venv

    venv.EnvBuilder(with_pip=False, symlinks=True).create(tmp_path / "bare")
    done = run("toolchain", "freeze", f"--python={tmp_path}/bare/bin/python", "--json")
    assert done.code == 5
    assert "has no Neuron SDK" in done.document["error"]["message"]


def test_options_that_exclude_each_other(run: Run, toolchain: StandIn) -> None:
    assert run("toolchain", "freeze", "sdk-2.29", f"--python={toolchain.python}").code == 2
    assert run("toolchain", "freeze", "--name=a", "-o", "b.toml").code == 2
