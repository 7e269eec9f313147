"""`lock`: write down what recipes and models mean today; and holding a build to it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from neuroncompile.config.lock import Entry, read_lock, summary, write_lock
from neuroncompile.errors import ConfigError
from neuroncompile.output import Output
from neuroncompile.pipeline.request import BuildRequest
from neuroncompile.settings import Settings

__all__ = ["Locked", "check_locked", "lock_command", "locked_of"]


class Locked(NamedTuple):
    """The entry for a request, and the file it stands in."""

    path: Path
    name: str
    entry: Entry | None


def locked_of(request: BuildRequest, path: Path) -> Locked | None:
    """What the lock file `path` says about a request; None where there is none.

    Raises:
        ConfigError: the file is broken, or --locked and there is none.
    """
    name = entry_name(request.model)
    if not path.is_file():
        if request.locked:
            raise _refused(path, name, f"there is no {path}")
        return None
    entry = read_lock(path).get(name)
    if entry is None and request.locked:
        raise _refused(path, name, f"{path} has no entry for {name}")
    return Locked(path, name, entry)


def entry_name(reference: str) -> str:
    """A point of a matrix stands in its recipe's entry."""
    return reference.partition("[")[0] if reference.endswith("]") else reference


def check_locked(locked: Locked, spec: Mapping[str, Any], key: str) -> None:
    """Hold a plan to its lock.

    Raises:
        ConfigError: the key is not among the locked ones, with the fields that differ from the
            nearest.
    """
    assert locked.entry is not None
    programs = locked.entry.programs
    if key in programs:
        return
    from neuroncompile.keys.explain import differences

    now = summary(spec)
    told = [differences({n: row[n] for n in row if n != "name"}, now) for row in programs.values()]
    nearest = min(told, key=len, default=[])
    first = nearest[0] if nearest else None
    what = ", ".join(f"{d.path} {d.left!r} locked, {d.right!r} now" for d in nearest[:4])
    raise ConfigError(
        f"{locked.name} now leads to {key[:12]}, which {locked.path} does not have: {what}",
        field=first.path if first else "key",
        value=first.right if first else key,
        legal=first.left if first else sorted(programs),
        hint=f"`neuroncompile lock {locked.name}` writes it down anew; without --locked it builds",
        details={
            "differences": [{"path": d.path, "locked": d.left, "now": d.right} for d in nearest]
        },
    )


def lock_command(
    named: Sequence[str],
    settings: Settings,
    output: Output,
    *,
    template: BuildRequest,
    out: str | None = None,
    check: bool = False,
) -> int:
    """Run `neuroncompile lock` and return its exit code."""
    path = Path(out) if out else settings.lock
    before = read_lock(path)
    after = dict(before)
    rows: list[dict[str, Any]] = []
    for reference in named:
        name = entry_name(reference)
        entry, programs = _entry(reference, template, settings, output)
        kept = before.get(name)
        if kept is not None and reference != name:  # one point: the others stay
            entry = entry._replace(programs={**kept.programs, **entry.programs})
        after[name] = entry
        rows += [{"entry": name, **row} for row in programs]
    changed = after != before
    code = 0
    if check:
        code = 3 if changed else 0
        output.line(f"{path} {'is not up to date' if changed else 'is up to date'}")
    else:
        if changed:
            write_lock(path, after)
        output.table(
            ("ENTRY", "PROGRAM", "KEY"), [(r["entry"], r["name"], r["key"][:12]) for r in rows]
        )
        output.line(f"{'wrote' if changed else 'unchanged'}  {path}")
    output.result(
        {"path": str(path), "changed": changed, "programs": rows, "checked": check},
        exit_code=code,
    )
    return code


def _entry(
    reference: str, template: BuildRequest, settings: Settings, output: Output
) -> tuple[Entry, list[dict[str, Any]]]:
    from neuroncompile.pipeline.plan import make_plan
    from neuroncompile.pipeline.progress import Transfer

    revisions: dict[str, str] = {}
    programs: dict[str, Mapping[str, Any]] = {}
    rows: list[dict[str, Any]] = []
    toolchain: dict[str, Any] = {}
    for point in _points(reference):
        request = template._replace(model=point, unlocked=True)
        plan = make_plan(request, settings, progress=Transfer(output))
        toolchain = {
            "name": plan.toolchain.name,
            "backend": plan.backend,
            "packages": plan.toolchain.spec(),
        }
        for model in (plan.model, plan.draft, *plan.adapters.values()):
            if model is not None and model.revision:
                revisions[model.reference] = model.revision
        programs[plan.key] = {"name": point, **summary(plan.spec)}
        rows.append({"name": point, "key": plan.key, "target": plan.target.text})
    return Entry(revisions, toolchain, programs), rows


def _points(reference: str) -> Iterator[str]:
    """Each point of a recipe's matrix; a model is its only one."""
    from neuroncompile.config import expand, find_recipe, load_recipe

    if reference.endswith(".toml") or ("/" not in reference and find_recipe(reference)):
        recipe = load_recipe(reference)
        if recipe.matrix:
            for cell in expand(recipe):
                yield reference + cell.name.removeprefix(recipe.name)
            return
    yield reference


def _refused(path: Path, name: str, why: str) -> ConfigError:
    return ConfigError(
        f"--locked: {why}",
        field="lock",
        value=str(path),
        legal=f"an entry for {name}",
        hint=f"neuroncompile lock {name}",
    )
