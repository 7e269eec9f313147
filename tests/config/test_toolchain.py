from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from neuroncompile.config import (
    Recipe,
    Toolchain,
    freeze,
    frozen_text,
    list_toolchains,
    load_recipe,
    load_toolchain,
    resolve_toolchain,
)
from neuroncompile.config.releases import RELEASES, sdk_packages
from neuroncompile.errors import ToolchainError

CPU = {"torch": "2.13.0+cpu", "graph_code": "0123456789ab"}


VERSION = st.text(st.characters(codec="utf-8", exclude_categories=("C", "Z")), min_size=1)


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    return {"XDG_CONFIG_HOME": str(tmp_path / "config"), "HOME": str(tmp_path)}


def recipe(tmp_path: Path, text: str) -> Recipe:
    path = tmp_path / "r.toml"
    path.write_text(f"schema = 1\n[toolchain]\n{text}")
    return load_recipe(path)


def test_order_of_resolution(tmp_path: Path, environ: dict[str, str]) -> None:
    asked = recipe(tmp_path, 'torch = "2.12.0"')
    lock = Toolchain("locked", "cpu", {"torch": "2.11.0"}, origin="lock")
    freeze(Toolchain("frozen", "cpu", {"torch": "2.10.0"}), tmp_path / "f.toml")
    flag = str(tmp_path / "f.toml")

    def torch(**layers: object) -> tuple[str, str]:
        found = resolve_toolchain("cpu", environ=environ, **layers)  # type: ignore[arg-type]
        return found.packages["torch"], found.origin

    everything = {"flag": flag, "lock": lock, "recipe": asked, "identity": CPU}
    assert torch(**everything) == ("2.10.0", "flag --toolchain")
    assert torch(lock=lock, recipe=asked, identity=CPU) == ("2.11.0", "lock")
    assert torch(recipe=asked, identity=CPU) == ("2.12.0", "recipe r")
    assert torch(identity=CPU) == ("2.13.0+cpu", "this interpreter")


@pytest.mark.parametrize(("backend", "hint"), [("cpu", "neuroncompile[cpu]"), ("nxdi", "sdk-2.28")])
def test_none_is_exit_5_with_the_fix(backend: str, hint: str) -> None:
    with pytest.raises(ToolchainError) as caught:
        resolve_toolchain(backend, identity={})
    assert caught.value.exit_code == 5
    assert hint in str(caught.value.hint)


def test_a_neuron_recipe_can_be_rehearsed_on_cpu(tmp_path: Path) -> None:
    asked = recipe(tmp_path, 'sdk = "2.28"')
    assert resolve_toolchain("cpu", recipe=asked, identity=CPU).packages == CPU
    assert resolve_toolchain("nxdi", recipe=asked).name == "sdk-2.28"


def test_the_other_backends_toolchain_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ToolchainError, match="nxdi backend"):
        resolve_toolchain("cpu", flag="sdk-2.28")


def test_a_frozen_file_gives_the_same_spec(tmp_path: Path) -> None:
    here = Toolchain("this environment", "cpu", CPU, python="/usr/bin/python3")
    path = tmp_path / "deep" / "cpu.toml"
    freeze(here, path)
    there = load_toolchain(str(path))
    assert there.spec() == here.spec()
    assert (there.name, there.backend, there.python) == ("this environment", "cpu", None)
    assert "/usr/bin" not in path.read_text()
    assert [file.name for file in path.parent.iterdir()] == ["cpu.toml"]
    assert frozen_text(there) == path.read_text()


def test_freezing_where_nothing_can_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ToolchainError, match="cannot be written"):
        freeze(Toolchain("t", "cpu", CPU), tmp_path / "file" / "cpu.toml")


@given(
    st.dictionaries(
        st.from_regex(r"[a-z][a-z0-9_-]{0,20}", fullmatch=True),
        VERSION,
        min_size=1,
    ),
    st.text(min_size=1),
)
def test_any_versions_survive_a_file(
    tmp_path_factory: pytest.TempPathFactory, packages: dict[str, str], name: str
) -> None:
    path = tmp_path_factory.mktemp("frozen") / "t.toml"
    freeze(Toolchain(name, "cpu", packages), path)
    found = load_toolchain(str(path))
    assert (found.name, dict(found.packages)) == (name, packages)


def test_named_toolchains(tmp_path: Path, environ: dict[str, str]) -> None:
    directory = tmp_path / "config" / "neuroncompile" / "toolchains"
    assert list_toolchains(environ) == []
    freeze(Toolchain("ours", "nxdi", sdk_packages("2.29")), directory / "ours.toml")
    assert list_toolchains(environ) == ["ours"]
    assert load_toolchain("ours", environ=environ).spec() == sdk_packages("2.29") | {}
    with pytest.raises(ToolchainError, match="no toolchain 'oours'") as caught:
        load_toolchain("oours", environ=environ)
    assert "did you mean ours?" in str(caught.value.hint)


def test_a_named_file_may_say_sdk_and_interpreter(tmp_path: Path) -> None:
    path = tmp_path / "t.toml"
    path.write_text(
        'schema = 1\nsdk = "2.28"\npython = "/opt/n/bin/python"\n'
        '[packages]\nneuronx_cc = "2.23.6484.0+abc"\n'
    )
    found = load_toolchain(str(path))
    assert (found.name, found.backend, found.python) == ("t", "nxdi", "/opt/n/bin/python")
    assert found.packages["neuronx-cc"] == "2.23.6484.0+abc"
    assert found.packages["torch"] == "2.9.*"
    assert "python" not in found.spec()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "schema is None"),
        ("schema = 2\n", "schema is 2"),
        ("schema = 1\n", "names no packages"),
        ("schema = 1\npackges = {}\n", "unknown key 'packges'"),
        ("schema = 1\n[packages]\ntorch = 2.13\n", "must be text"),
        ("schema = 1\npackages = 4\n", "must be a table"),
        ("schema = 1\nbackend = 'gpu'\n[packages]\ntorch = '1'\n", "backend is 'gpu'"),
        ("schema = 1\nsdk = '2.99'\n", "no Neuron SDK"),
        ("schema =\n", "toolchain file"),
    ],
)
def test_malformed_files(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "t.toml"
    path.write_text(text)
    with pytest.raises(ToolchainError, match=said) as caught:
        load_toolchain(str(path))
    assert caught.value.hint


def test_a_missing_file_says_how_to_make_it(tmp_path: Path) -> None:
    with pytest.raises(ToolchainError) as caught:
        load_toolchain(str(tmp_path / "no.toml"))
    assert "toolchain freeze" in str(caught.value.hint)


def test_a_recipes_misspelt_package(tmp_path: Path) -> None:
    with pytest.raises(ToolchainError, match="unknown package 'neuron-cc'") as caught:
        resolve_toolchain("nxdi", recipe=recipe(tmp_path, 'neuron-cc = "2"'))
    assert "neuronx-cc" in str(caught.value.hint)


@pytest.mark.parametrize(
    ("asked", "installed", "same"),
    [
        ("2.13.0", "2.13.0", True),
        ("2.13.0", "2.13.0+cpu", True),
        ("2.13.0+cpu", "2.13.0", False),
        ("2.13.0+cpu", "2.13.0+cpu", True),
        ("2.13.0", "2.13.1", False),
        ("2.9.*", "2.9.1+cpu", True),
        ("2.9.*", "2.90.0", False),
        ("2.13.0", None, False),
    ],
)
def test_mismatches(asked: str, installed: str | None, same: bool) -> None:
    found = {} if installed is None else {"torch": installed}
    expected = [] if same else [("torch", asked, installed)]
    assert Toolchain("t", "cpu", {"torch": asked}).mismatches(found) == expected


def test_a_release_expands() -> None:
    assert sdk_packages("2.28") == {
        "neuronx-cc": "2.23.6484.0",
        "neuronx-distributed-inference": "0.8.16251",
        "neuronx-distributed": "0.17.26814",
        "torch-neuronx": "2.9.0.2.12.22436",
        "libneuronxla": "2.2.15515.0",
        "nki": "0.2.0",
        "torch": "2.9.*",
        "torch-xla": "2.9.*",
        "transformers": "4.57.*",
    }


@pytest.mark.parametrize(
    ("sdk", "nxdi"),
    [("2.29", "0.9.17334"), ("2.27", "0.7.15063"), ("2.27.0", "0.7.14366"), ("2.31", "0.10.18399")],
)
def test_a_minor_is_its_latest_patch(sdk: str, nxdi: str) -> None:
    assert sdk_packages(sdk)["neuronx-distributed-inference"] == nxdi


@pytest.mark.parametrize("sdk", RELEASES)
def test_every_release_is_complete(sdk: str) -> None:
    packages = sdk_packages(sdk)
    assert all(version and version[0].isdigit() for version in packages.values())
    assert ("nki" in packages) == (tuple(map(int, sdk.split("."))) >= (2, 27))
    assert packages["torch-neuronx"].startswith(packages["torch"].removesuffix("*"))
    assert ("transformers" in packages) == (tuple(map(int, sdk.split("."))) < (2, 30))


def test_torch_follows_an_overridden_torch_neuronx() -> None:
    packages = sdk_packages("2.26", {"torch-neuronx": "2.7.0.2.10.16998"})
    assert (packages["torch"], packages["torch-xla"]) == ("2.7.*", "2.7.*")


@pytest.mark.parametrize("sdk", ["2.20", "2.32", "2.2", "2", "", "2.28.9", "latest"])
def test_unknown_releases_list_the_known(sdk: str) -> None:
    with pytest.raises(ToolchainError, match=r"2\.31\.1") as caught:
        sdk_packages(sdk)
    assert caught.value.legal == list(RELEASES)
