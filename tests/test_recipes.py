"""Every shipped recipe loads, resolves from its own facts and passes every check."""

from __future__ import annotations

from pathlib import Path

import pytest

from neuroncompile.config import (
    NeuronConfig,
    check_config,
    expand,
    load_recipe,
    resolve_config,
    resolve_toolchain,
)
from neuroncompile.hardware.targets import parse_target
from neuroncompile.keys import compile_spec, spec_key
from neuroncompile.models import from_facts, is_model_reference
from neuroncompile.models.architecture import normalise, shape_of

RECIPES = sorted((Path(__file__).parents[1] / "recipes").glob("*.toml"))


def resolved(path: Path) -> NeuronConfig:
    recipe = load_recipe(path)
    model = from_facts(recipe.facts, recipe.name)
    return resolve_config(
        model=normalise(model.config),
        model_dtype=model.dtype,
        target=recipe.target or parse_target("cpu"),
        recipe=recipe,
        environ={},
    )


def test_the_shipped_ones_are_here() -> None:
    assert {path.stem for path in RECIPES} >= {
        "llama-3.1-8b-inf2",
        "llama-3.1-8b-trn1",
        "llama-3.3-70b-trn2",
        "qwen3-30b-a3b-trn2",
        "smollm2-135m",
    }


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_recipe(path: Path) -> None:
    for recipe in expand(load_recipe(path)):
        assert recipe.model_ref
        assert is_model_reference(recipe.model_ref)
        target = recipe.target
        assert target is not None
        backend = "cpu" if target.is_cpu else "nxdi"
        toolchain = resolve_toolchain(backend, recipe=recipe, identity={"torch": "2.13.0"})
        model = from_facts(recipe.facts, recipe.name)
        normal = normalise(model.config)
        config = resolve_config(
            model=normal, model_dtype=model.dtype, target=target, recipe=recipe, environ={}
        )
        warnings = check_config(config, model=normal, toolchain=toolchain)
        assert not [line for line in warnings if "SDK" in line or "NxD" in line]
        assert config["torch_dtype"] == recipe.facts["torch_dtype"]
        assert config.origin("torch_dtype") == "model"
        if target.is_cpu:
            shape_of(model.config)
        spec = compile_spec(
            backend=backend,
            model=normal,
            neuron=config.plain(),
            compiler={"args": [], "env": {}},
            optlevel=None,
            target=config.target.spec(),
            toolchain=toolchain.spec(),
        )
        assert len(spec_key(spec)) == 64


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_choices_are_explained(path: Path) -> None:
    text = path.read_text()
    assert text.startswith("# ")
    assert text.count("\n#") >= 2
    assert max(map(len, text.splitlines())) <= 100


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_hub_models_are_pinned(path: Path) -> None:
    recipe = load_recipe(path)
    assert recipe.model_ref is not None
    if recipe.model_ref.startswith("pypi:"):
        assert set(recipe.digests) == {"wheel", "file"}
    else:
        assert len(recipe.revision or "") == 40


def test_smollm2_is_what_the_readme_promises() -> None:
    config = resolved(next(path for path in RECIPES if path.stem == "smollm2-135m"))
    assert config["seq_len"] == 2048
    assert config["context_encoding_buckets"] == [128, 512, 2048]
    assert config["token_generation_buckets"] == [2048]
    assert config.target.platform == "cpu"


def test_the_inf2_recipe_is_the_trn1_one_for_another_chip() -> None:
    by_name = {path.stem: path for path in RECIPES}
    trn1, inf2 = (resolved(by_name[f"llama-3.1-8b-{chip}"]) for chip in ("trn1", "inf2"))
    assert trn1.plain() == inf2.plain()
    assert trn1.target.spec() != inf2.target.spec()


def test_qwen3_moe_meets_its_window() -> None:
    config = resolved(next(path for path in RECIPES if path.stem == "qwen3-30b-a3b-trn2"))
    assert config["batch_size"] >= 16
    assert config["ctx_batch_size"] == 1
