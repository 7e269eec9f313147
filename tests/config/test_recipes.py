from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from neuroncompile.config.recipes import (
    expand,
    find_cell,
    find_recipe,
    list_recipes,
    load_recipe,
    recipe_directories,
)
from neuroncompile.errors import ConfigError, ModelNotFoundError

Write = Callable[[str, str], Path]
DIGEST = "sha256:" + "ab" * 32


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Write:
    """Write ./recipes/NAME.toml in an empty working directory."""
    monkeypatch.chdir(tmp_path)
    Path("recipes").mkdir()

    def call(name: str, text: str) -> Path:
        path = Path("recipes") / f"{name}.toml"
        path.write_text(f"schema = 1\n{text}")
        return path

    return call


FULL = f"""
[model]
ref = "org/name"
revision = "main"
digests = {{ wheel = "{DIGEST}", file = "{DIGEST}" }}
facts = {{ model_type = "llama", rope_scaling = {{ factor = 8.0 }} }}
[target]
instance = "trn2.48xlarge"
lnc = 1
[config]
seq_len = 2048
on_device_sampling_config = {{ top_k = 1 }}
[matrix]
"config.batch_size" = [1, 4]
[toolchain]
sdk = "2.28"
[draft]
ref = "org/small"
config = {{ speculation_length = 4 }}
[adapters.legal]
ref = "org/adapter"
revision = "main"
[golden]
prompt = "x"
"""


def test_every_table_is_read(write: Write) -> None:
    path = write("full", FULL)
    recipe = load_recipe("full")
    assert (recipe.name, recipe.path, recipe.parents) == ("full", path, ())
    assert (recipe.model_ref, recipe.revision) == ("org/name", "main")
    assert recipe.digests == {"wheel": DIGEST, "file": DIGEST}
    assert recipe.facts == {"model_type": "llama", "rope_scaling": {"factor": 8.0}}
    assert recipe.target is not None
    assert recipe.target.spec() == {"platform": "trn2", "lnc": 1}
    assert recipe.config == {"seq_len": 2048, "on_device_sampling_config": {"top_k": 1}}
    assert recipe.matrix == {"config.batch_size": (1, 4)}
    assert recipe.toolchain == {"sdk": "2.28"}
    assert recipe.draft == {"ref": "org/small", "config": {"speculation_length": 4}}
    assert recipe.adapters == {"legal": {"ref": "org/adapter", "revision": "main"}}
    assert recipe.golden == {"prompt": "x"}


def test_an_empty_recipe_leaves_all_open(write: Write) -> None:
    write("empty", "")
    recipe = load_recipe("empty")
    assert recipe.target is None
    assert recipe.model_ref is None
    assert list(expand(recipe)) == [recipe]


@pytest.mark.parametrize(
    ("text", "said", "hint"),
    [
        ("[modle]\n", "unknown key 'modle'", "model"),
        ("[model]\nreff = 'x'\n", "model.reff", "model.ref"),
        ("[target]\nplatfrom = 'cpu'\n", "target.platfrom", "target.platform"),
        ("[draft]\nconfg = {}\n", "draft.confg", "draft.config"),
        ("[adapters.a]\nrank = 4\n", "adapters.a.rank", "adapters.a.ref"),
        ("[adapters]\na = 'x'\n", "adapters.a", "edit"),
        ("[model]\ndigests = { whell = 'x' }\n", "model.digests.whell", "model.digests.wheel"),
        ("[model]\ndigests = { file = 'sha256:12' }\n", "no SHA-256", "64"),
        (f"[model]\ndigests = {{ file = '{DIGEST[7:]}' }}\n", "no SHA-256", "sha256:"),
        (f"[model]\ndigests = {{ file = '{DIGEST.upper()}' }}\n", "no SHA-256", "lower-case"),
        ("[model]\nref = 4\n", "model.ref is 4; it must be text", "edit"),
        ("[target]\nlnc = '2'\n", "must be a whole number", "edit"),
        ("[model]\nfacts = 'x'\n", "must be a table", "edit"),
        ("config = 4\n", "[config] must be a table", "[config]"),
        ("[matrix]\nbatch_size = [1]\n", "does not begin with", '"config.batch_size"'),
        ("[matrix]\n'confg.batch_size' = [1]\n", "does not begin with", "edit"),
        ("[matrix]\n'config.batch_size' = []\n", "something in it", "[1, 4]"),
        ("[matrix]\n'config.batch_size' = 4\n", "must be a list", "[1, 4]"),
        ("[matrix]\n'target.platfrom' = ['cpu']\n", "target.platfrom", "target.platform"),
        ("[matrix]\n'target.lnc' = ['2']\n", "must be a whole number", "edit"),
        ("[matrix]\n'model.reff' = ['a/b']\n", "model.reff", "model.ref"),
        ("[matrix]\n'model.digests.file' = ['x']\n", "no SHA-256", "64"),
        ("[matrix]\n'toolchain.sdk' = [2.28]\n", "toolchain.sdk must be text", "quote"),
        ("[matrix]\n'config.batch_size' = [1, 4, 1]\n", "has 1 twice", "once"),
        ("[matrix]\n'config.a.b' = [1]\n'config.a' = [{}]\n", "set the same values", "leave one"),
        ("[toolchain]\nsdk = 2.28\n", "toolchain.sdk must be text", "quote"),
        ("extends = 4\n", "extends must be text", "extends"),
        ("extends = 'nosuch-base'\n", "no such recipe", "recipes ls"),
        ("[config\n", "is not TOML", "edit"),
    ],
)
def test_mistakes_name_the_file_and_the_fix(write: Write, text: str, said: str, hint: str) -> None:
    path = write("bad", text)
    with pytest.raises(ConfigError) as caught:
        load_recipe("bad")
    error = caught.value
    assert str(error).startswith(f"{path}: ")
    assert error.details["file"] == str(path)
    assert said in str(error)
    assert hint in str(error.hint)


@pytest.mark.parametrize("schema", ["", "schema = 2\n", "schema = '1'\n"])
def test_the_schema_is_asked_for(write: Write, schema: str) -> None:
    write("old", "").write_text(schema)
    with pytest.raises(ConfigError, match="schema = 1"):
        load_recipe("old")


def test_inheritance_merges_tables(write: Write) -> None:
    base = write("base", FULL)
    write("child", 'extends = "base"\n[config]\non_device_sampling_config = { top_p = 0.9 }\n')
    child = load_recipe("child")
    assert child.parents == (base,)
    assert child.model_ref == "org/name"
    assert child.config == {
        "seq_len": 2048,
        "on_device_sampling_config": {"top_k": 1, "top_p": 0.9},
    }


def test_another_model_target_or_sdk_drops_what_belongs_to_the_old_one(write: Write) -> None:
    write("base", FULL)
    write(
        "child",
        'extends = "base"\n[model]\nref = "org/other"\n[target]\nplatform = "inf2"\n'
        '[toolchain]\nsdk = "2.27"\n',
    )
    child = load_recipe("child")
    assert (child.model_ref, child.revision, child.digests) == ("org/other", None, {})
    assert child.facts == {}
    assert child.target_table == {"platform": "inf2"}
    assert child.toolchain == {"sdk": "2.27"}


def test_parents_are_found_beside_the_file_first(write: Write, tmp_path: Path) -> None:
    write("base", "[config]\nseq_len = 1\n")
    other = tmp_path / "elsewhere"
    other.mkdir()
    (other / "base.toml").write_text("schema = 1\n[config]\nseq_len = 2\n")
    (other / "child.toml").write_text('schema = 1\nextends = "base"\n')
    (other / "far.toml").write_text('schema = 1\nextends = "../recipes/base.toml"\n')
    assert load_recipe(other / "child.toml").config == {"seq_len": 2}
    assert load_recipe(other / "far.toml").config == {"seq_len": 1}


@pytest.mark.parametrize(
    "links", [{"a": "a"}, {"a": "b", "b": "a"}, {"a": "b", "b": "c", "c": "b"}]
)
def test_a_circle_is_refused(write: Write, links: dict[str, str]) -> None:
    for name, parent in links.items():
        write(name, f'extends = "{parent}"\n')
    with pytest.raises(ConfigError, match="extends itself") as caught:
        load_recipe("a")
    assert "→" in str(caught.value)


def test_search_order(write: Write, tmp_path: Path) -> None:
    shipped = dict(list_recipes())
    assert "smollm2-135m" in shipped
    path = write("smollm2-135m", "")
    assert recipe_directories()[0] == Path("recipes")
    assert find_recipe("smollm2-135m") == path
    assert ("smollm2-135m", path) in list_recipes()
    assert len(list_recipes()) == len(shipped)
    assert find_recipe(str(shipped["smollm2-135m"])) == shipped["smollm2-135m"]
    assert find_recipe("llama-3.1-8b-trn1") == shipped["llama-3.1-8b-trn1"]
    assert find_recipe("org/name") is None
    assert find_recipe("./nosuch.toml") is None


@pytest.mark.parametrize(
    ("name", "hint"),
    [("smolm2-135m", "smollm2-135m"), ("./nosuch/smollm2-135.toml", "smollm2-135m"), ("q", "ls")],
)
def test_no_such_recipe(name: str, hint: str) -> None:
    with pytest.raises(ModelNotFoundError) as caught:
        load_recipe(name)
    assert caught.value.exit_code == 4
    assert hint in str(caught.value.hint)


def test_the_matrix_is_its_product_in_order(write: Write) -> None:
    write(
        "grid",
        FULL.replace(
            '"config.batch_size" = [1, 4]',
            '"config.batch_size" = [1, 4]\n"config.on_device_sampling_config.top_k" = [1, 8]\n'
            '"target.platform" = ["trn2", "trn3"]',
        ),
    )
    points = list(expand(load_recipe("grid")))
    assert len(points) == 8
    assert [point.config["batch_size"] for point in points] == [1] * 4 + [4] * 4
    assert points[0].name == "grid[batch_size=1,top_k=1,platform=trn2]"
    assert points[0].config["seq_len"] == 2048
    assert points[-1].config["on_device_sampling_config"] == {"top_k": 8}
    assert points[-1].target_table == {"platform": "trn3"}
    assert points[-1].model_ref == "org/name"
    assert not points[-1].matrix


def test_a_matrix_over_models_drops_the_base_models_facts(write: Write) -> None:
    write("models", FULL.replace('"config.batch_size" = [1, 4]', '"model.ref" = ["a/b", "c/d"]'))
    points = list(expand(load_recipe("models")))
    assert [point.model_ref for point in points] == ["a/b", "c/d"]
    assert all((p.revision, p.digests, p.facts) == (None, {}, {}) for p in points)


def test_a_point_is_the_recipe_that_says_its_values(write: Write) -> None:
    """What a point is, is what a recipe would be that extends the matrix's and says the values."""
    write("base", FULL.replace("[matrix]", "").replace('"config.batch_size" = [1, 4]', ""))
    axes = {
        "model.revision": '"v2"',
        "model.facts.hidden_size": "64",
        "target.lnc": "2",
        "config.on_device_sampling_config.top_p": "0.9",
        "toolchain.sdk": '"2.27"',
    }
    matrix = "\n".join(f'"{axis}" = [{value}]' for axis, value in axes.items())
    write("grid", f'extends = "base"\n[matrix]\n{matrix}\n')
    said = "\n".join(
        f"[{axis.rpartition('.')[0]}]\n{axis.rpartition('.')[2]} = {value}"
        for axis, value in axes.items()
    )
    write("child", f'extends = "base"\n{said}\n')
    [point] = expand(load_recipe("grid"))
    child = load_recipe("child")
    assert point._replace(name="", path=Path(), parents=(), cell={}) == child._replace(
        name="", path=Path(), parents=()
    )
    assert list(point.cell) == list(axes)


def test_another_sdk_in_the_matrix_drops_the_versions(write: Write) -> None:
    write("sdks", '[toolchain]\nneuronx-cc = "2.1"\n[matrix]\n"toolchain.sdk" = ["2.27"]\n')
    assert [point.toolchain for point in expand(load_recipe("sdks"))] == [{"sdk": "2.27"}]


def test_points_have_names_of_their_own(write: Write) -> None:
    write(
        "grid",
        '[matrix]\n"config.a.top_k" = [1, 2]\n"config.b.top_k" = [1]\n'
        '"config.context_encoding_buckets" = [[64, 128]]\n"config.c" = ["x", true]\n',
    )
    names = [point.name for point in expand(load_recipe("grid"))]
    buckets = "context_encoding_buckets=[64,128]"
    assert names[0] == f"grid[config.a.top_k=1,config.b.top_k=1,{buckets},c=x]"
    assert names[-1] == f"grid[config.a.top_k=2,config.b.top_k=1,{buckets},c=true]"
    assert len(set(names)) == 4
    for point in expand(load_recipe("grid")):
        assert find_cell(point.name) == point
        assert find_cell(f"./recipes/grid.toml{point.name.removeprefix('grid')}") == point._replace(
            path=Path("./recipes/grid.toml")
        )


def test_no_such_point(write: Write) -> None:
    write("grid", '[matrix]\n"config.batch_size" = [1, 4]\n')
    write("plain", "")
    with pytest.raises(ConfigError, match="no point") as caught:
        find_cell("grid[batch_sizes=4]")
    assert caught.value.legal == ["[batch_size=1]", "[batch_size=4]"]
    assert "grid[batch_size=4]" in str(caught.value.hint)
    with pytest.raises(ConfigError, match=r"no \[matrix\]"):
        find_cell("plain[batch_size=4]")
    assert find_cell("./model[1]") is None
    assert find_cell("nosuch[1]") is None
