"""The neuron config, recipes and toolchains: what to compile, and with which compiler.

Values come in layers (default, model, recipe, environment, flag, `--set`), each effective value
keeps its origin, and what NxDI would ignore, assert on or fail at run time is refused here.
"""

from __future__ import annotations

from neuroncompile.config.checks import check_config
from neuroncompile.config.layers import resolve_config
from neuroncompile.config.recipe import Recipe
from neuroncompile.config.recipes import (
    expand,
    find_cell,
    find_recipe,
    list_recipes,
    load_recipe,
)
from neuroncompile.config.toolchain import (
    Toolchain,
    freeze,
    frozen_text,
    list_toolchains,
    load_toolchain,
    resolve_toolchain,
)
from neuroncompile.config.values import NeuronConfig, Value

__all__ = [
    "NeuronConfig",
    "Recipe",
    "Toolchain",
    "Value",
    "check_config",
    "expand",
    "find_cell",
    "find_recipe",
    "freeze",
    "frozen_text",
    "list_recipes",
    "list_toolchains",
    "load_recipe",
    "load_toolchain",
    "resolve_config",
    "resolve_toolchain",
]
