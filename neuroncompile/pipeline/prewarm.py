"""Build every program that recipes and their matrices name, one after the other.

    for each recipe, each point of its matrix, if it is in this shard:
        plan ─▶ here or in a tier? ── yes ──▶ warm
                  │ no
                build, as `neuroncompile build` does ─▶ push

A program that cannot be planned, built or pushed does not keep the others from it. What is
finished is warm the next time, so the same command goes on after whatever has ended it.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

from neuroncompile.config import Recipe, expand, find_cell, find_recipe, load_recipe
from neuroncompile.errors import (
    CacheMissError,
    InterruptedBuildError,
    ModelNotFoundError,
    NeuronCompileError,
    UsageError,
)
from neuroncompile.output import Output, human_seconds
from neuroncompile.pipeline.build import Built, preflight
from neuroncompile.pipeline.build_command import provide
from neuroncompile.pipeline.plan import Plan, make_plan
from neuroncompile.pipeline.presence import Presence, presence_of
from neuroncompile.pipeline.prewarm_report import (
    Record,
    Row,
    check_junit,
    exit_code,
    show,
    write_junit,
)
from neuroncompile.pipeline.prewarm_shard import Shard
from neuroncompile.pipeline.progress import Transfer
from neuroncompile.pipeline.request import BuildRequest
from neuroncompile.pipeline.sharing import Tiers
from neuroncompile.settings import Settings
from neuroncompile.store import Artifact

__all__ = ["Options", "prewarm_command", "programs"]

OTHER_SHARD = "in other shards"
FAIL_FAST = "not tried after a failure"
INTERRUPTED = "interrupted"


class Options(NamedTuple):
    """How to pre-warm.

    Attributes:
        check: only look.
        pull: bring here what only a tier has.
        require_cached: the same, and never compile.
        push: bring everything into every tier.
        fail_fast: stop at the first failure.
        shard: the part to do; None is all.
        record: file that gets a JSON line a program.
        junit: file that gets JUnit XML at the end.
    """

    check: bool = False
    pull: bool = False
    require_cached: bool = False
    push: bool = False
    fail_fast: bool = False
    shard: Shard | None = None
    record: Path | None = None
    junit: Path | None = None

    @property
    def never_compiles(self) -> bool:
        """What is cold stays cold."""
        return self.check or self.require_cached


def prewarm_command(
    named: Sequence[str], options: Options, settings: Settings, output: Output
) -> int:
    """Run `neuroncompile prewarm` and return its exit code.

    Raises:
        ModelNotFoundError: an argument names no recipe; nothing was begun.
        UsageError: options that exclude each other, or need a tier and have none.
        ConfigError: a report file that cannot be written.
    """
    _refuse_contradictions(options, settings)
    rows = list(programs(named))
    record = None if options.record is None else Record(options.record, output)
    if options.junit is not None:
        check_junit(options.junit)
    began, clock = time.time(), time.monotonic()
    with closing(Tiers(settings, output, push=options.push)) as tiers:
        interrupted = _Run(options, settings, output, tiers, record).all(rows)
    seconds = time.monotonic() - clock
    show(rows, options.shard, seconds, output)
    if options.junit is not None:
        try:
            write_junit(options.junit, rows, options.shard, began, seconds)
        except OSError as error:
            output.warn(f"--junit {options.junit} cannot be written: {error.strerror}")
    code = exit_code(rows) if interrupted is None else interrupted.exit_code
    output.result(_summary(rows, options.shard, seconds), exit_code=code)
    if interrupted is not None:
        output.error(interrupted)
    return code


def programs(named: Sequence[str]) -> Iterator[Row]:
    """A row for each program that the arguments name, in their order, each once.

    Args:
        named: recipes by name or path, points of a matrix as `NAME[a=1]`, directories of recipes.

    A recipe that cannot be read is one row, with its error.

    Raises:
        ModelNotFoundError: an argument that names nothing.
    """
    seen = set[tuple[Path, str]]()
    for argument in named:
        for path, recipes, error in _recipes(argument):
            for recipe in recipes:
                point = recipe.name.removeprefix(path.stem)
                if (path.resolve(), point) not in seen:
                    seen.add((path.resolve(), point))
                    yield Row(path.stem, recipe.cell, recipe.name, f"{path}{point}")
            if error is not None and (path.resolve(), "") not in seen:
                seen.add((path.resolve(), ""))
                yield Row(path.stem, {}, path.stem, str(path), error=error)


def _recipes(argument: str) -> Iterator[tuple[Path, list[Recipe], NeuronCompileError | None]]:
    if argument.endswith("]") and (cell := find_cell(argument)) is not None:
        yield cell.path, [cell], None
        return
    path = find_recipe(argument)
    directory = Path(argument).expanduser()
    if path is None and directory.is_dir():
        files = sorted(directory.glob("*.toml"))
        if not files:
            raise ModelNotFoundError(
                f"no recipe (*.toml) in {argument}",
                hint="name a directory that has some, or `neuroncompile recipes ls`",
                details={"directory": str(directory)},
            )
    else:
        files = [load_recipe(argument).path if path is None else path]  # names the nearest
    for file in files:
        try:
            yield file, list(expand(load_recipe(file))), None
        except NeuronCompileError as error:
            yield file, [], error


class _Run:
    """One pass over the programs."""

    def __init__(
        self,
        options: Options,
        settings: Settings,
        output: Output,
        tiers: Tiers,
        record: Record | None,
    ) -> None:
        self.options, self.settings, self.output = options, settings, output
        self.tiers, self.record = tiers, record
        self._closed: set[int] = set()

    def all(self, rows: Sequence[Row]) -> InterruptedBuildError | None:
        """Fill in every row; the interruption, if there was one."""
        shard = self.options.shard
        mine = []
        for row in rows:
            if shard is None or shard.takes(row.recipe, row.cell):
                mine.append(row)
            else:
                self._close(row, OTHER_SHARD)
        if shard is not None:
            self.output.note(f"shard {shard} ({shard.origin}): {len(mine)} of {len(rows)} programs")
        for number, row in enumerate(mine):
            try:
                self._one(row, f"[{number + 1}/{len(mine)}] {row.name}")
                self._close(row)
            except (KeyboardInterrupt, InterruptedBuildError) as stop:
                for rest in mine[number:]:
                    self._close(rest, INTERRUPTED if rest.status == "skipped" else None)
                return _interruption(stop, number, len(mine), self.settings)
            if row.status == "failed" and self.options.fail_fast:
                for rest in mine[number + 1 :]:
                    self._close(rest, FAIL_FAST)
                break
        return None

    def _close(self, row: Row, reason: str | None = None) -> None:
        """The row is final, and told once."""
        if id(row) in self._closed:
            return
        row.reason, row.when = reason, time.time()
        if reason is not None:
            row.error = None  # of a recipe that cannot be read; who tries it tells it
        if self.record is not None:
            self.record.add(row)
        self._closed.add(id(row))

    def _one(self, row: Row, title: str) -> None:
        began = time.monotonic()
        self.tiers.next_artifact()
        try:
            if row.error is not None:
                raise row.error
            self._settle(row, title)
        except InterruptedBuildError:
            raise
        except NeuronCompileError as error:
            row.status, row.error = "failed", error
        except Exception as error:
            from neuroncompile.pipeline.bug import report

            row.status, row.error = "failed", report(error, "prewarm")
        row.seconds = time.monotonic() - began
        took = human_seconds(row.seconds)
        if row.error is not None:
            self.output.note(f"{title}: failed after {took} (exit code {row.exit_code})")
            self.output.note(f"  {row.error}")
        else:
            where = f", {row.source}" if row.status == "warm" and row.source else ""
            self.output.note(f"{title}: {row.status}{where} ({took})")

    def _settle(self, row: Row, title: str) -> None:
        """Look, and build what is not there."""
        request = BuildRequest(model=row.reference)
        plan = self._planned(request)
        row.key = plan.key
        there = presence_of(
            plan, self.settings, self.output, self.tiers, touch=not self.options.check
        )
        if there.warm or self.options.never_compiles:
            for warning in plan.warnings:
                self.output.warn(warning)
        if self.options.never_compiles and not there.warm:
            self.tiers.raise_failure()
            row.status = "cold"
        elif there.warm and not self._wants_more(there):
            row.status, row.source = "warm", there.tier or "store"
            row.size = _size(there.artifact)
        else:
            self._provide(row, request, title, there)

    def _planned(self, request: BuildRequest) -> Plan:
        """A recipe's facts do where its model is not here: what is warm needs no download."""
        check = preflight(request, self.settings, self.tiers)
        return make_plan(
            request,
            self.settings,
            progress=Transfer(self.output),
            before_download=None if self.options.never_compiles else check,
            from_facts=True,
        )

    def _wants_more(self, there: Presence) -> bool:
        """Warm, and yet to be pulled here, or pushed to where it is not known to be."""
        if self.options.pull or self.options.require_cached:
            return bool(self.settings.tiers)
        known = there.artifact is None and len(self.settings.tiers) == 1
        return self.options.push and not known

    def _provide(self, row: Row, request: BuildRequest, title: str, there: Presence) -> None:
        if not there.warm:
            self.output.note(f"{title}: compiling…")
        try:
            built = self._provided(request, require_cached=there.warm)
        except CacheMissError:
            if self.options.never_compiles:
                raise
            # What the recipe's facts name is warm; the model itself has another key.
            built = self._provided(request, require_cached=False)
        row.key, row.size = built.key, _size(built.artifact)
        row.status = {"compiler": "built", "tier": "pulled", "store": "warm"}[built.source]
        row.source = built.tier or built.source

    def _provided(self, request: BuildRequest, *, require_cached: bool) -> Built:
        return provide(
            request,
            self.settings,
            self.output,
            self.tiers,
            require_cached=require_cached,
            push=self.options.push,
        )[0]


def _size(artifact: Artifact | None) -> int | None:
    return None if artifact is None else sum(layer.size for layer in artifact.layers)


def _refuse_contradictions(options: Options, settings: Settings) -> None:
    chosen = {
        "--check": options.check,
        "--require-cached": options.require_cached,
        "--push": options.push,
    }
    asked = [name for name, given in chosen.items() if given]
    if len(asked) > 1 or (options.check and options.pull):
        both = " and ".join([*asked, *(["--pull"] if options.pull else [])][:2])
        raise UsageError(f"{both} exclude each other", hint="leave one of them out")
    if options.pull and not settings.tiers:
        raise UsageError(
            "--pull needs a tier to pull from", hint="add --tier URL or set NEURONCOMPILE_TIER"
        )


def _interruption(
    stop: BaseException, done: int, total: int, settings: Settings
) -> InterruptedBuildError:
    what = f" ({stop})" if isinstance(stop, InterruptedBuildError) else ""
    return InterruptedBuildError(
        f"interrupted after {done} of {total} programs{what}; what is finished is kept in "
        f"{settings.store}",
        hint="the same command goes on from there",
        details={"done": done, "programs": total},
    )


def _summary(rows: Sequence[Row], shard: Shard | None, seconds: float) -> dict[str, object]:
    statuses = [row.status for row in rows]
    return {
        "counts": {status: statuses.count(status) for status in sorted(set(statuses))},
        "shard": None
        if shard is None
        else {"index": shard.index + 1, "count": shard.count, "origin": shard.origin},
        "seconds": round(seconds, 3),
        "programs": [row.as_json() for row in rows],
    }
