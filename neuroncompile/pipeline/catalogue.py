"""What can be named: recipes and model families."""

from __future__ import annotations

from typing import Any

from neuroncompile.config import list_recipes, load_recipe
from neuroncompile.output import Output

__all__ = ["models_ls_command", "recipes_ls_command", "recipes_show_command"]

NXDI_VERIFIED = "0.9"
"""The last NxDI release with public source; what is listed later is unverified."""


def recipes_ls_command(output: Output) -> int:
    """Name, model, target and file of each recipe."""
    recipes = [load_recipe(path) for _, path in list_recipes()]
    output.table(
        ("RECIPE", "MODEL", "TARGET", "FILE"),
        [
            (r.name, r.model_ref or "-", r.target.text if r.target else "cpu", str(r.path))
            for r in recipes
        ],
    )
    output.result(
        [
            {
                "name": r.name,
                "model": r.model_ref,
                "target": r.target.text if r.target else None,
                "path": str(r.path),
            }
            for r in recipes
        ]
    )
    return 0


def recipes_show_command(name: str, output: Output) -> int:
    """One recipe with what it inherits."""
    import json

    recipe = load_recipe(name)
    shown = {
        "name": recipe.name,
        "path": str(recipe.path),
        "parents": [str(p) for p in recipe.parents],
        "model": {
            "ref": recipe.model_ref,
            "revision": recipe.revision,
            "digests": dict(recipe.digests),
            "facts": dict(recipe.facts),
        },
        "target": dict(recipe.target_table),
        "config": dict(recipe.config),
        "matrix": {key: list(values) for key, values in recipe.matrix.items()},
        "toolchain": dict(recipe.toolchain),
        "draft": dict(recipe.draft),
        "adapters": {key: dict(value) for key, value in recipe.adapters.items()},
        "golden": dict(recipe.golden),
    }
    output.line(json.dumps(shown, indent=2))
    output.result(shown)
    return 0


def models_ls_command(output: Output) -> int:
    """Families with class, NxDI's module and releases, and what the cpu target runs."""
    from neuroncompile.models.families import ARCHITECTURES, STAND_INS

    rows: list[dict[str, Any]] = []
    for architecture in ARCHITECTURES.values():
        module, _, name = architecture.nxdi.partition(":")
        rows.append(
            {
                "family": architecture.family,
                "architecture": architecture.name,
                "class": name,
                "module": module,
                "nxdi_since": architecture.since,
                "nxdi_verified_to": NXDI_VERIFIED,
                "before_that": STAND_INS.get(architecture.family),
                "cpu": architecture.cpu,
            }
        )
    output.table(
        ("FAMILY", "ARCHITECTURE", "NXDI", "CPU", "NXDI CLASS"),
        [
            (
                str(row["family"]),
                str(row["architecture"]),
                f">= {row['nxdi_since']}",
                "yes" if row["cpu"] else "-",
                row["class"] + (", before it Llama's" if row["before_that"] else ""),
            )
            for row in rows
        ],
    )
    output.note(f"read from NxDI up to {NXDI_VERIFIED}; others: build --model-class SOURCE:CLASS")
    output.result(rows)
    return 0
