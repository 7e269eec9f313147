"""What a request names before any model is looked at: a recipe, and a target."""

from __future__ import annotations

from neuroncompile.config import Recipe
from neuroncompile.errors import ConfigError
from neuroncompile.hardware.targets import Target, parse_target
from neuroncompile.pipeline.request import BuildRequest

__all__ = ["recipe_of", "target_of"]


def recipe_of(reference: str) -> Recipe | None:
    """The recipe, or the point of its matrix, that a reference names; None when it names a model.

    Raises:
        ModelNotFoundError: no such recipe, with the nearest.
        ConfigError: malformed, or asking for what this version does not do.
    """
    from neuroncompile.config import find_cell, find_recipe, load_recipe

    recipe = find_cell(reference) if reference.endswith("]") else None
    if recipe is None:
        named = "/" not in reference and ":" not in reference
        named = named and not reference.startswith((".", "~"))
        is_recipe = reference.endswith(".toml") or (named and not reference.endswith(".gguf"))
        if not is_recipe and find_recipe(reference) is None:
            return None
        recipe = load_recipe(reference)  # names the nearest recipe when there is none
    if recipe.matrix:
        raise _many(recipe, reference)
    return recipe


def target_of(request: BuildRequest, recipe: Recipe | None) -> tuple[Target, str]:
    """What is compiled for, and the layer that chose it."""
    if request.target:
        return parse_target(request.target), "flag --target"
    if request.artifact is not None:
        from neuroncompile.pipeline.artifact import target_text

        text = target_text(request.artifact)
        return parse_target(text), f"artifact {request.artifact.key[:12]}"
    if recipe is not None and recipe.target is not None:
        return recipe.target, f"recipe {recipe.name}"
    return parse_target("cpu"), "default"


def _many(recipe: Recipe, reference: str) -> ConfigError:
    from neuroncompile.config import expand

    names = [reference + cell.name.removeprefix(recipe.name) for cell in expand(recipe)]
    return ConfigError(
        f"recipe {recipe.name} has a [matrix] of {len(names)} programs, and this command takes one",
        field="matrix",
        value=sorted(recipe.matrix),
        legal=names,
        hint=f"`neuroncompile prewarm {reference}` builds them all; '{names[0]}' names one",
    )
