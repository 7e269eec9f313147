"""`config show` and `config diff`: effective values, where they come from, what they change."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from neuroncompile.errors import ConfigError, UsageError
from neuroncompile.keys.exclusions import MODEL_EXCLUSIONS, NEURON_EXCLUSIONS, Exclusion
from neuroncompile.keys.explain import excluded_differences
from neuroncompile.output import Output
from neuroncompile.pipeline.changes import changes, text_of
from neuroncompile.pipeline.columns import fitted
from neuroncompile.pipeline.plan import Plan, architecture_for, make_plan
from neuroncompile.pipeline.progress import Transfer
from neuroncompile.pipeline.request import BuildRequest
from neuroncompile.pipeline.stores import open_store
from neuroncompile.settings import Settings

__all__ = ["compiler_rows", "config_diff_command", "config_show_command"]


def config_show_command(
    request: BuildRequest, settings: Settings, output: Output, *, changed: bool = False
) -> int:
    """Every effective value with its origin.

    Args:
        changed: only what something other than a default has set.
    """
    plan = make_plan(request, settings, progress=Transfer(output), from_facts=True)
    for warning in plan.warnings:
        output.warn(warning)
    rows = [
        (name, value, origin)
        for name, value, origin in plan.config.rows()
        if not (changed and origin.startswith("default"))
    ]
    output.line(f"{plan.model.name} for {plan.target.text} ({plan.target_origin})")
    _table(output, ("CONFIG", "VALUE", "ORIGIN"), [(n, _text(v), o) for n, v, o in rows])
    compiler = compiler_rows(plan)
    if compiler:
        output.line()
        _table(output, ("COMPILER", "VALUE", "ORIGIN"), compiler)
    output.result(
        {
            "key": plan.key,
            "target": plan.target.text,
            "target_origin": plan.target_origin,
            "config": [
                {"name": name, "value": value, "origin": origin} for name, value, origin in rows
            ],
            "compiler": plan.spec["compiler"],
            "compiler_origins": {name: origin for name, _, origin in compiler},
        }
    )
    return 0


def compiler_rows(plan: Plan) -> list[tuple[str, str, str]]:
    """(name, text, origin) of what reaches the compiler beside the neuron config.

    It comes from the caller's environment alone (`pipeline.plan`). All of it is in the key.
    """
    compiler: Mapping[str, Any] = plan.spec["compiler"]
    rows = [(name, str(value), f"environment {name}") for name, value in compiler["env"].items()]
    if compiler["args"]:
        rows.insert(0, ("args", " ".join(compiler["args"]), "environment NEURON_CC_FLAGS"))
    return rows


class _Side(NamedTuple):
    """A program to compare.

    Attributes:
        plan: how it came about; None where only the spec is known, in which what a key leaves
            out cannot be seen.
    """

    name: str
    key: str
    spec: Mapping[str, Any]
    plan: Plan | None = None


def config_diff_command(
    left: str, right: str, request: BuildRequest, settings: Settings, output: Output
) -> int:
    """What differs between two programs, and whether it makes two keys.

    Args:
        left, right: a model or recipe, an artifact's key, or a file with a spec.
        request: options that hold for both where they are models; its own `model` is not read.
    """
    sides = [_side(text, request, settings, output) for text in (left, right)]
    one, two = sides
    if request != BuildRequest(model=request.model) and one.plan is two.plan is None:
        raise UsageError(
            "build options change nothing about finished programs",
            hint="leave the options out, or name a model or recipe",
        )
    told = changes(one.spec, two.spec)
    excluded = [] if one.plan is None or two.plan is None else _excluded(one.plan, two.plan)
    for letter, side in (("A", one), ("B", two)):
        output.line(f"{letter}  {side.key[:12]}  {side.name}")
    if not told:
        output.line("one key" if excluded else "the same in everything")
    if told or excluded:
        rows = [
            *(
                (c.path, _text(c.left), _text(c.right), "follows" if c.follows else "yes")
                for c in told
            ),
            *((path, _text(a), _text(b), f"no: {why.reason}") for path, a, b, why in excluded),
        ]
        _table(output, ("FIELD", "A", "B", "CHANGES KEY"), rows)
    if one.plan is None or two.plan is None:
        output.note("a finished spec holds what its key does: other fields are not compared")
    output.result(
        {
            "left": {"name": one.name, "key": one.key},
            "right": {"name": two.name, "key": two.key},
            "same_key": not told,
            "differences": [
                *({**change.document(), "changes_key": True} for change in told),
                *(
                    {
                        "field": path,
                        "left": a,
                        "right": b,
                        "follows": False,
                        "changes_key": False,
                        "reason": why.reason,
                        "proof": why.proof,
                    }
                    for path, a, b, why in excluded
                ),
            ],
        }
    )
    return 0


def _side(text: str, request: BuildRequest, settings: Settings, output: Output) -> _Side:
    from neuroncompile.config import find_recipe
    from neuroncompile.keys import spec_key

    if text.endswith(".json") and not Path(text).is_dir():
        spec = _spec_file(Path(text))
        return _Side(text, spec_key(spec), spec)
    is_key = re.fullmatch(r"(sha256:)?[0-9a-f]{8,64}", text) and not Path(text).exists()
    if is_key and find_recipe(text) is None:
        store = open_store(settings, output)
        artifact = store.find(text)
        return _Side(artifact.key[:12], artifact.key, _program(store.spec_of(artifact), text))
    plan = make_plan(
        request._replace(model=text), settings, progress=Transfer(output), from_facts=True
    )
    for warning in plan.warnings:
        output.warn(f"{text}: {warning}")
    return _Side(plan.model.name, plan.key, plan.spec, plan)


def _spec_file(path: Path) -> Mapping[str, Any]:
    try:
        spec = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        why = error.strerror if isinstance(error, OSError) else None
        raise _no_spec(str(path), why or str(error)) from None
    if isinstance(spec, dict) and isinstance(spec.get("result"), dict):
        spec = spec["result"].get("spec")  # the document of `explain --json` or `store show`
    return _program(spec, str(path))


def _program(spec: Any, name: str) -> Mapping[str, Any]:
    """A compile spec, and no other: graphs and weights have no neuron config."""
    for table in ("model", "neuron", "target"):
        if not isinstance(spec, dict) or not isinstance(spec.get(table), dict):
            raise _no_spec(name, f"it has no `{table}` table")
    program: Mapping[str, Any] = spec
    if program.get("kind") != "compile":
        raise _no_spec(name, f"it is of kind {program.get('kind')!r}")
    return program


def _no_spec(name: str, why: str) -> ConfigError:
    return ConfigError(
        f"{name} is no spec of a program: {why}",
        field="spec",
        value=name,
        legal="a spec as `neuroncompile store show KEY --json` gives it",
        hint="`neuroncompile store show KEY --json` gives one; or name a model, a recipe, a KEY",
    )


def _excluded(one: Plan, two: Plan) -> list[tuple[str, Any, Any, Exclusion]]:
    """Fields that differ and are in no key, with the reason of each."""
    # Where one of the two is fused, `pad_token_id` is in its key and so has been told already.
    fused = any(plan.config.get("enable_fused_speculation") for plan in (one, two))
    found = []
    for prefix, table, a, b in (
        ("model", MODEL_EXCLUSIONS, _model(one), _model(two)),
        ("neuron", NEURON_EXCLUSIONS, one.config.plain(), two.config.plain()),
    ):
        nested = prefix == "neuron"
        for difference in excluded_differences(a, b, table, nested=nested, fused_speculation=fused):
            names = difference.path.split(".")
            why = next((table[name] for name in names if name in table), None)
            if why is not None:
                path = f"{prefix}.{difference.path}"
                found.append((path, difference.left, difference.right, why))
    return found


def _model(plan: Plan) -> dict[str, Any]:
    """The model's config before anything is left out."""
    from neuroncompile.models.architecture import normalise

    return normalise(plan.model.config, architecture_for(plan.model, plan.custom))


def _table(output: Output, headers: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    output.table(headers, fitted(headers, rows))


def _text(value: Any) -> str:
    """Whole, and without what could move a terminal's cursor or worse."""
    text = text_of(value) if not isinstance(value, dict) else json.dumps(value)
    return "".join(c if c.isprintable() else "?" for c in text)
