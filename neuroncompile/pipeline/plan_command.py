"""`plan` as a command: what a program needs, before anything is fetched or compiled."""

from __future__ import annotations

from functools import partial
from typing import Any

from neuroncompile.config.compile_time import Minutes
from neuroncompile.config.dimensions import Dimensions
from neuroncompile.config.host import HostNeed
from neuroncompile.config.memory import ASSUMPTIONS, Need
from neuroncompile.errors import ConfigError, UsageError
from neuroncompile.output import Output
from neuroncompile.pipeline import plan_page as page
from neuroncompile.pipeline.estimate import (
    CpuNeed,
    History,
    cpu_need,
    history_of,
    host_of,
    minutes_of,
    need_of,
)
from neuroncompile.pipeline.progress import Transfer
from neuroncompile.pipeline.request import BuildRequest
from neuroncompile.pipeline.subject import Subject, draft_dimensions, load_subject
from neuroncompile.pipeline.suggestions import Suggestion, suggest
from neuroncompile.settings import Settings

__all__ = ["plan_command"]


def plan_command(
    request: BuildRequest,
    settings: Settings,
    output: Output,
    *,
    draft: str | None = None,
    price: float | None = None,
    check: bool = False,
) -> int:
    """Show graphs, memory, host, time and what to change; exit 5 with `check` when red.

    Args:
        draft: reference of a draft model that is loaded beside the model.
        price: dollars an hour of the host that compiles.

    Raises:
        ModelError: no config.json and no facts.
        ConfigError: a refused value or combination.
    """
    if price is not None and not 0 <= price < float("inf"):
        raise UsageError(f"--price is {price}", hint="write dollars an hour, such as --price 1.53")
    subject = load_subject(request, settings, progress=Transfer(output))
    for warning in (*subject.variant.warnings, *subject.model.unsized):
        output.warn(warning)
    history = history_of(subject, settings)
    if subject.variant.target.is_cpu:
        if draft:
            raise ConfigError(
                "the cpu target has no speculation with a draft model",
                field="draft",
                value=draft,
                legal=None,
                hint="leave --draft-model out, or name a Neuron target with --target",
            )
        return _cpu(subject, history, price, output, check)
    second = draft_dimensions(draft, settings) if draft else None
    return _neuron(subject, second, history, price, settings, output, check)


def _neuron(
    subject: Subject,
    draft: Dimensions | None,
    history: list[History],
    price: float | None,
    settings: Settings,
    output: Output,
    check: bool,
) -> int:
    need = need_of(subject, subject.variant, draft)
    host = host_of(subject, subject.variant, need)
    jobs = settings.jobs or min(host.jobs or 1, max(1, len(subject.graphs())))
    minutes = minutes_of(subject, subject.variant, jobs)
    changes: list[Suggestion] = []
    if need.verdict == "red":
        changes = suggest(subject, partial(need_of, subject, draft=draft))
    page.head(subject, output)
    page.memory(subject, need, output)
    page.graphs(subject, output)
    page.host(subject, host, output)
    page.time(subject, minutes, jobs, history, price, output)
    page.suggestions(need, changes, output)
    code = 5 if check and need.verdict == "red" else 0
    output.result(
        {
            **_head(subject),
            "verdict": need.verdict,
            "memory": _memory(subject, need),
            "host": _host(host),
            "compile": _compile(minutes, jobs, history),
            "cost": _cost(minutes, price),
            "suggestions": [_suggestion(change) for change in changes],
        },
        exit_code=code,
    )
    return code


def _cpu(
    subject: Subject, history: list[History], price: float | None, output: Output, check: bool
) -> int:
    need = cpu_need(subject)
    page.head(subject, output)
    page.cpu_memory(need, output)
    page.graphs(subject, output)
    page.time(subject, None, 1, history, price, output)
    code = 5 if check and need.verdict == "red" else 0
    output.result(
        {
            **_head(subject),
            "verdict": need.verdict,
            "memory": _cpu_memory(need),
            "host": None,
            "compile": _compile(None, 1, history),
            "cost": None,
            "suggestions": [],
        },
        exit_code=code,
    )
    return code


def _head(subject: Subject) -> dict[str, Any]:
    variant = subject.variant
    return {
        "model": subject.name,
        "recipe": subject.recipe.name if subject.recipe else None,
        "parameters": subject.model.parameters,
        "active_parameters": subject.model.active_parameters,
        "target": variant.target.spec(),
        "instance": variant.target.instance,
        "ranks": variant.ranks,
        "tp_degree": variant.config["tp_degree"],
        "batch_size": variant.config["batch_size"],
        "seq_len": variant.config["seq_len"],
        "key": subject.plan.key if subject.plan else None,
        "no_key": subject.no_key,
        "graphs": [
            {"name": g.name, "submodel": g.submodel, "batch": g.batch, "bucket": g.bucket}
            for g in subject.graphs()
        ],
    }


def _memory(subject: Subject, need: Need) -> dict[str, Any]:
    return {
        "of": "logical core",
        "budget": need.budget,
        "need": need.total,
        "fraction": round(need.fraction, 4),
        "weights": {"total": need.weight_total, **need.weights},
        "cache": need.cache,
        "cache_per_token": need.cache_token,
        "scratch": need.scratch,
        "io": need.io,
        "code": need.code,
        "draft": need.draft,
        "estimated": dict(ASSUMPTIONS),
    }


def _cpu_memory(need: CpuNeed) -> dict[str, Any]:
    return {
        "of": "host",
        "budget": need.available,
        "need": need.total,
        "fraction": round(need.total / need.available, 4) if need.available else None,
        "weights": {"total": need.weights},
        "cache": need.cache,
        "cache_per_token": need.token,
        "tokens_that_fit": need.tokens_that_fit,
    }


def _host(host: HostNeed) -> dict[str, Any]:
    return {
        "checkpoint": host.checkpoint,
        "sharding": {"low": host.sharding[0], "high": host.sharding[1]},
        "presharded_load": host.presharded,
        "compiler": host.compiler,
        "disk": host.disk,
        "ram": host.ram,
        "jobs": host.jobs,
        "shards_here": host.shards_here,
    }


def _compile(minutes: Minutes | None, jobs: int, history: list[History]) -> dict[str, Any]:
    return {
        "minutes": minutes
        and {"low": minutes.low, "typical": minutes.typical, "high": minutes.high},
        "jobs": jobs,
        "history": [
            {"key": row.key, "seconds": row.seconds, "graphs": row.graphs} for row in history
        ],
    }


def _cost(minutes: Minutes | None, price: float | None) -> dict[str, float] | None:
    if minutes is None or price is None:
        return None
    return {
        "price_per_hour": price,
        "low": round(minutes.low / 60 * price, 2),
        "typical": round(minutes.typical / 60 * price, 2),
        "high": round(minutes.high / 60 * price, 2),
    }


def _suggestion(change: Suggestion) -> dict[str, Any]:
    return {
        "change": change.text,
        "options": list(change.options),
        "verdict": change.need.verdict,
        "need": change.need.total,
        "budget": change.need.budget,
        "fraction": round(change.need.fraction, 4),
    }
