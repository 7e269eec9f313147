"""`recipes check`: every point of every recipe, as a build would look at it before it begins."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from neuroncompile.config import expand, list_recipes, load_recipe
from neuroncompile.errors import ModelError, NeuronCompileError
from neuroncompile.output import Output
from neuroncompile.pipeline.plan import make_plan
from neuroncompile.pipeline.request import BuildRequest
from neuroncompile.settings import Settings

__all__ = ["recipes_check_command"]


def recipes_check_command(named: Sequence[str], settings: Settings, output: Output) -> int:
    """Run `neuroncompile recipes check`: 0 when all can be built, 5 when one cannot.

    Nothing is downloaded: a recipe's facts do. One without facts, whose model is not here, is
    read and not judged.
    """
    offline = dataclasses.replace(settings, offline=True)
    rows = []
    for reference in named or [name for name, _ in list_recipes()]:
        rows += _recipe(reference, offline)
    bad = sum(row["status"] == "refused" for row in rows)
    output.table(
        ("RECIPE", "TARGET", "STATUS", "KEY", "WHY"),
        [
            (
                row["recipe"],
                row["target"] or "-",
                row["status"],
                (row["key"] or "-")[:12],
                row["error"]["message"] if row["error"] else "",
            )
            for row in rows
        ],
    )
    for row in rows:
        for warning in row["warnings"]:
            output.note(f"{row['recipe']}: {warning}")
    if bad:
        output.line(f"{bad} of {len(rows)} programs cannot be built as they stand")
    code = 5 if bad else 0
    output.result(rows, exit_code=code)
    return code


def _recipe(reference: str, settings: Settings) -> list[dict[str, Any]]:
    try:
        recipe = load_recipe(reference)
        points = list(expand(recipe))
    except ModelError:
        raise  # there is no such recipe
    except NeuronCompileError as error:
        return [_row(Path(reference).stem, None, error)]
    return [
        _point(reference + point.name.removeprefix(recipe.name), point.name, settings)
        for point in points
    ]


def _point(reference: str, name: str, settings: Settings) -> dict[str, Any]:
    try:
        plan = make_plan(BuildRequest(model=reference, unlocked=True), settings, from_facts=True)
    except ModelError as error:
        return {**_row(name, None, error), "status": "not judged"}
    except NeuronCompileError as error:
        return _row(name, None, error)
    told = [w for w in plan.warnings if "computed from the recipe's facts" not in w]
    return {**_row(name, plan.key, None), "target": plan.target.text, "warnings": told}


def _row(name: str, key: str | None, error: NeuronCompileError | None) -> dict[str, Any]:
    return {
        "recipe": name,
        "target": None,
        "status": "good" if error is None else "refused",
        "key": key,
        "warnings": [],
        "error": None if error is None else error.as_json(),
    }
