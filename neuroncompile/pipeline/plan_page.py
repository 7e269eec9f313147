"""A plan on 80 columns: bars on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys

from neuroncompile.config.compile_time import MEASURED_TOKENS, Minutes
from neuroncompile.config.host import HostNeed
from neuroncompile.config.memory import Need
from neuroncompile.hardware.memory import GIB
from neuroncompile.output import Output, human_bytes, human_seconds
from neuroncompile.pipeline.estimate import CpuNeed, History
from neuroncompile.pipeline.subject import Subject
from neuroncompile.pipeline.suggestions import Suggestion

__all__ = ["cpu_memory", "graphs", "head", "host", "memory", "suggestions", "time"]

WIDTH = 28
COLOURS = {"green": "32", "amber": "33", "red": "1;31"}
ESTIMATED = {"scratch", "inputs, outputs", "code and rings"}


def head(subject: Subject, output: Output) -> None:
    """Model, target and key."""
    variant, config = subject.variant, subject.variant.config
    size = f"{subject.model.parameters / 1e9:.3g}B parameters"
    if subject.model.experts:
        size += f", {subject.model.active_parameters / 1e9:.3g}B active"
    where = variant.target.text
    if not variant.target.is_cpu:
        where += f", LNC {variant.target.lnc}, tensor parallelism {config['tp_degree']}"
        if variant.ranks != config["tp_degree"]:
            where += f", {variant.ranks} ranks"
    output.line(f"model    {subject.name}")
    output.line(f"         {size}, {config['torch_dtype']}")
    output.line(f"target   {where}")
    output.line(f"program  {config['batch_size']} x {config['seq_len']} tokens")
    output.line(f"key      {subject.plan.key if subject.plan else 'none: ' + str(subject.no_key)}")
    output.line()


def memory(subject: Subject, need: Need, output: Output) -> None:
    """A logical core's memory, part by part."""
    verdict = output.style(need.verdict, COLOURS[need.verdict], sys.stdout)
    output.line(
        f"a logical core's memory: {_gib(need.total)} of {_gib(need.budget)} GiB, "
        f"{need.fraction:.0%}, {verdict}"
    )
    for name, size in need.parts.items():
        mark = " (estimate)" if name in ESTIMATED else ""
        output.line(_row(name, size, need.budget) + mark)
    shown = [(name, size) for name, size in _largest(need) if size >= GIB / 100]
    weights = ", ".join(f"{name} {_gib(size)}" for name, size in shown or _largest(need)[:1])
    for line in _wrapped(f"weights in GiB: {weights}", "  "):
        output.line(line)
    output.line(f"  a token takes {need.cache_token / 1024:.4g} KiB of cache on each core")
    output.line()


def cpu_memory(need: CpuNeed, output: Output) -> None:
    """This host's memory."""
    if need.available is None:
        output.line(f"memory: {human_bytes(need.total)}")
        budget = need.total
    else:
        verdict = output.style(need.verdict, COLOURS[need.verdict], sys.stdout)
        output.line(
            f"this host's memory: {human_bytes(need.total)} of {human_bytes(need.available)} "
            f"available, {need.total / need.available:.0%}, {verdict}"
        )
        budget = need.available
    for name, size in (("weights", need.weights), ("key-value cache", need.cache)):
        output.line(_row(name, size, budget))
    if need.verdict == "red":
        fits = need.tokens_that_fit
        output.line(
            f"  {fits} tokens of cache fit: (batch_size + 1) x seq_len may be as many"
            if fits
            else "  the weights alone do not fit"
        )
    output.line()


def graphs(subject: Subject, output: Output) -> None:
    """Submodels with their batch and buckets."""
    found = subject.graphs()
    if not found:
        output.line("graphs: NxD Inference derives the buckets of this configuration itself")
    else:
        output.line(f"graphs: {len(found)}")
    rows: dict[str, list[str]] = {}
    for graph in found:
        what = f"{graph.submodel}, batch {graph.batch}"
        if subject.variant.target.is_cpu:  # regions of one submodel share a bucket
            name = graph.name.removeprefix(f"{graph.submodel} ")
            rows.setdefault(graph.submodel, []).append(name)
        else:
            rows.setdefault(what, []).append(str(graph.bucket))
    for name, parts in rows.items():
        for line in _wrapped(f"{name}: {', '.join(parts)}", "  "):
            output.line(line)
    output.line()


def host(subject: Subject, need: HostNeed, output: Output) -> None:
    """Host memory and disk, each an estimate."""
    low, high = need.sharding
    where = ""
    if need.ram is not None:
        fits = {True: "fits", False: "does not fit", None: "may not fit"}[need.shards_here]
        where = f"; {fits} {subject.variant.target.instance}'s {need.ram / GIB:.0f}"
    output.line("host (estimates)")
    output.line(f"  cut the weights  {low / GIB:.0f} to {high / GIB:.0f} GiB of memory{where}")
    output.line(f"  load them cut    {need.presharded / GIB:.0f} GiB of memory")
    jobs = "" if need.jobs is None else f"; {need.jobs} fit side by side"
    output.line(f"  a compiler       {need.compiler / GIB:.0f} GiB of memory{jobs}")
    output.line(
        f"  disk             {need.disk / GIB:.0f} GiB, {need.checkpoint / GIB:.0f} of it "
        "the checkpoint"
    )
    output.line()


def time(
    subject: Subject,
    minutes: Minutes | None,
    jobs: int,
    history: list[History],
    price: float | None,
    output: Output,
) -> None:
    """Minutes of compiling: the rule, what this store saw, and what it costs."""
    if minutes is not None:
        output.line(
            f"compiling: {_minutes(minutes.low)} to {_minutes(minutes.high)}, about "
            f"{_minutes(minutes.typical)}, with {jobs} compiler{'s' if jobs > 1 else ''} at once"
        )
        output.line("  from 51 models measured elsewhere, which scatter by a factor of 1.6")
        if max((graph.bucket for graph in subject.graphs()), default=0) > MEASURED_TOKENS:
            output.line(f"  none had a graph above {MEASURED_TOKENS} tokens, which may take longer")
        if price is not None:
            dollars = [m / 60 * price for m in minutes]
            output.line(
                f"  at ${price:g} an hour: ${dollars[0]:.2f} to ${dollars[2]:.2f}, about "
                f"${dollars[1]:.2f}"
            )
    if history:
        seconds = [row.seconds for row in history]
        spread = human_seconds(seconds[0])
        if len(seconds) > 1:
            spread += f" to {human_seconds(seconds[-1])}"
        what = "program" if len(seconds) == 1 else "programs"
        output.line(
            f"in this store: {len(seconds)} {what} of this family and target compiled in {spread}"
        )
    elif minutes is None:
        output.line("compiling: nothing of this family and target was compiled in this store yet")


def suggestions(need: Need, changes: list[Suggestion], output: Output) -> None:
    """What makes it fit, cheapest first."""
    if need.verdict != "red":
        if need.verdict == "amber":
            output.line()
            output.line("amber: it may compile and still not load; a tenth is best left free")
        return
    output.line()
    if not changes:
        output.line("no change of tensor parallelism, batch, length, precision or instance fits it")
        return
    output.line("it fits with any of these, cheapest first")
    for change in changes:
        output.line(f"  {change.text}: {change.need.fraction:.0%}, {change.need.verdict}")
        glued = " ".join(option.replace(" ", "\0") for option in change.options)
        for line in _wrapped(glued, "    "):
            output.line(line.replace("\0", " "))


def _row(name: str, size: int, budget: int) -> str:
    text = f"  {name:<16}{_gib(size):>8} GiB"
    if not sys.stdout.isatty():
        return text
    filled = min(WIDTH, round(size / budget * WIDTH))
    return f"{text}  {'█' * filled}{'░' * (WIDTH - filled)}"


def _largest(need: Need) -> list[tuple[str, int]]:
    return sorted(need.weights.items(), key=lambda item: -item[1])


def _gib(size: float) -> str:
    return f"{size / GIB:.2f}"


def _minutes(value: float) -> str:
    return f"{value:.0f} min" if value >= 1 else f"{value * 60:.0f} s"


def _wrapped(text: str, indent: str) -> list[str]:
    import textwrap

    return textwrap.wrap(
        text,
        80,
        initial_indent=indent,
        subsequent_indent=indent + "  ",
        break_long_words=False,
        break_on_hyphens=False,
    )
