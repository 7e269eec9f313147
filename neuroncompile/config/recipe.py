"""A recipe as data: what one TOML file, its parents included, asks for."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from neuroncompile.hardware.targets import Target, parse_target

__all__ = ["Recipe"]


class Recipe(NamedTuple):
    """A loaded recipe; every table is empty when the file has none.

    Attributes:
        name: the file's stem, for people and origins; of a point of a matrix `stem[a=1,b=2]`.
        path: the file; `parents` are the files it extends, nearest first.
        model_ref: `[model] ref`, a reference as on the command line, or None.
        revision: `[model] revision`.
        digests: `[model] digests`, "wheel" and "file" → "sha256:…".
        facts: `[model] facts`, a config.json subset that dry runs need no model for.
        target_table: `[target]` as written; `target` reads it.
        config: `[config]`, NxDI keywords and nested tables.
        matrix: `[matrix]`, dotted name → values.
        toolchain: `[toolchain]`, `sdk` or package versions.
        draft: `[draft]`, like `[model]` plus `config`.
        adapters: `[adapters.NAME]`.
        golden: `[golden]`, prompts and answers that `verify` compares.
        cell: of a point of a matrix, dotted name → its value.
        model_class: `[model] class`, "PATH_OR_MODULE:Class"; a path is relative to the file.
    """

    name: str
    path: Path
    parents: tuple[Path, ...]
    model_ref: str | None
    revision: str | None
    digests: Mapping[str, str]
    facts: Mapping[str, Any]
    target_table: Mapping[str, Any]
    config: Mapping[str, Any]
    matrix: Mapping[str, tuple[Any, ...]]
    toolchain: Mapping[str, str]
    draft: Mapping[str, Any]
    adapters: Mapping[str, Mapping[str, Any]]
    golden: Mapping[str, Any]
    cell: Mapping[str, Any] = {}
    model_class: str | None = None

    @property
    def target(self) -> Target | None:
        """The target asked for, or None when the recipe leaves it open.

        Raises:
            ConfigError: unknown platform, instance, level or LNC.
        """
        text = self.target_table.get("instance") or self.target_table.get("platform")
        if text is None:
            return None
        return parse_target(
            text, lnc=self.target_table.get("lnc"), isa=self.target_table.get("isa")
        )
