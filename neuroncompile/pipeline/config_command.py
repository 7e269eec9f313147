"""`config show` and `config diff`: effective values, where they come from, what they change."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from neuroncompile.errors import ConfigError
from neuroncompile.keys.exclusions import MODEL_EXCLUSIONS, NEURON_EXCLUSIONS, Exclusion
from neuroncompile.keys.explain import excluded_differences
from neuroncompile.output import Output
from neuroncompile.pipeline.changes import changes, text_of
from neuroncompile.pipeline.plan import architecture_for, make_plan
from neuroncompile.pipeline.progress import Transfer
from neuroncompile.pipeline.request import BuildRequest
from neuroncompile.pipeline.stores import open_store
from neuroncompile.settings import Settings

__all__ = ["config_diff_command", "config_show_command"]

_WIDEST = 44  # a value in a table; --json has it whole


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
    environment = plan.spec["compiler"]["env"]
    output.line(f"{plan.model.name} for {plan.target.text} ({plan.target_origin})")
    output.table(
        ("CONFIG", "VALUE", "ORIGIN"),
        [(name, _short(value), origin) for name, value, origin in rows],
    )
    for name, value in environment.items():
        output.line(f"{name}={value}  (environment, in the key)")
    if plan.spec["compiler"]["args"]:
        flags = " ".join(plan.spec["compiler"]["args"])
        output.line(f"compiler flags {flags}  (environment NEURON_CC_FLAGS, in the key)")
    output.result(
        {
            "key": plan.key,
            "target": plan.target.text,
            "target_origin": plan.target_origin,
            "config": [
                {"name": name, "value": value, "origin": origin} for name, value, origin in rows
            ],
            "compiler": plan.spec["compiler"],
        }
    )
    return 0


class _Side(NamedTuple):
    """A program to compare; `model` and `neuron` are as given, before anything is left out."""

    name: str
    key: str | None
    spec: Mapping[str, Any]
    model: Mapping[str, Any]
    neuron: Mapping[str, Any]


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
    told = changes(one.spec, two.spec)
    excluded = [*_excluded(one, two)]
    if not told and not excluded:
        output.line("the same in everything")
    elif not told:
        output.line("one key")
    output.table(
        ("FIELD", one.name[-24:], two.name[-24:], "CHANGES THE KEY"),
        [
            *(
                (c.path, _short(c.left), _short(c.right), "follows" if c.follows else "yes")
                for c in told
            ),
            *((path, _short(a), _short(b), f"no: {why.reason}") for path, a, b, why in excluded),
        ],
    )
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
    if text.endswith(".json") and Path(text).is_file():
        spec = _spec_file(Path(text))
        return _Side(text, None, spec, spec.get("model", {}), spec["neuron"])
    if re.fullmatch(r"(sha256:)?[0-9a-f]{8,64}", text) and not Path(text).exists():
        store = open_store(settings, output)
        artifact = store.find(text)
        spec = store.spec_of(artifact)
        return _Side(
            artifact.key[:12], artifact.key, spec, spec.get("model", {}), spec.get("neuron", {})
        )
    from neuroncompile.models.architecture import normalise

    plan = make_plan(
        request._replace(model=text), settings, progress=Transfer(output), from_facts=True
    )
    normal = normalise(plan.model.config, architecture_for(plan.model, plan.custom))
    return _Side(plan.model.name, plan.key, plan.spec, normal, plan.config.plain())


def _spec_file(path: Path) -> dict[str, Any]:
    try:
        spec = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise _no_spec(path, str(error)) from None
    if isinstance(spec, dict) and isinstance(spec.get("result"), dict):
        spec = spec["result"].get("spec")  # the document of `explain --json` or `store show`
    if not isinstance(spec, dict) or not isinstance(spec.get("neuron"), dict):
        raise _no_spec(path, "it has no `neuron` table")
    return spec


def _no_spec(path: Path, why: str) -> ConfigError:
    return ConfigError(
        f"{path} is no spec: {why}",
        field="spec",
        value=str(path),
        legal="a spec as `neuroncompile store show KEY --json` gives it",
        hint="`neuroncompile store show KEY --json` gives one; or name a model, a recipe, a KEY",
    )


def _excluded(one: _Side, two: _Side) -> list[tuple[str, Any, Any, Exclusion]]:
    """Fields that differ and are in no key, with the reason of each."""
    fused = all(side.neuron.get("enable_fused_speculation") for side in (one, two))
    found = []
    for prefix, table, a, b in (
        ("model", MODEL_EXCLUSIONS, one.model, two.model),
        ("neuron", NEURON_EXCLUSIONS, one.neuron, two.neuron),
    ):
        nested = prefix == "neuron"
        for difference in excluded_differences(a, b, table, nested=nested, fused_speculation=fused):
            names = difference.path.split(".")
            why = next((table[name] for name in names if name in table), None)
            if why is not None:
                path = f"{prefix}.{difference.path}"
                found.append((path, difference.left, difference.right, why))
    return found


def _short(value: Any) -> str:
    text = text_of(value) if not isinstance(value, dict) else json.dumps(value)
    text = "".join(c if c.isprintable() else "?" for c in text)
    return text if len(text) <= _WIDEST else text[: _WIDEST - 1] + "…"
