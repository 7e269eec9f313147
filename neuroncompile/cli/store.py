"""`neuroncompile store …`: look, measure, keep, remove, repair."""

from __future__ import annotations

from typing import Annotated

import typer

from neuroncompile.cli import store_archive
from neuroncompile.cli.state import State

__all__ = ["register"]

KINDS = "compile (programs), graph (their pieces), pack (derived weights) or shard (cut ones)"


def register(app: typer.Typer, name: str, summary: str, epilog: str) -> None:
    """Add the group to `app`."""
    group = typer.Typer(help=f"{summary[0].upper()}{summary[1:]}.", no_args_is_help=True)
    group.command("ls", help=LS, epilog=epilog)(ls)
    group.command("show", help=SHOW, epilog=epilog)(show)
    group.command("path", help=PATH, epilog=epilog)(path)
    group.command("du", help=DU, epilog=epilog)(du)
    group.command("stats", help=STATS, epilog=epilog)(stats)
    group.command("gc", help=GC, epilog=epilog)(gc)
    group.command("pin", help=PIN, epilog=epilog)(pin)
    group.command("unpin", help=UNPIN, epilog=epilog)(unpin)
    group.command("rm", help=RM, epilog=epilog)(rm)
    group.command("verify", help=VERIFY, epilog=epilog)(verify)
    store_archive.register(group, epilog)
    app.add_typer(group, name=name, short_help=summary)


LS = """List artifacts, newest use first.

Examples:

\b
  neuroncompile store ls
  neuroncompile store ls --kind graph --json
"""

SHOW = """Show one artifact: its spec, files, sizes and how it was made.

Example:

\b
  neuroncompile store show 3f9a1c20
"""

PATH = """Print the directory of one artifact's files (read-only; copy before changing).

Example:

\b
  ls "$(neuroncompile store path 3f9a1c20)"
"""

DU = """Show what the store takes: by kind, each blob counted once.

Example:

\b
  neuroncompile store du
"""

STATS = """Show hits and misses, and the compile time the hits saved.

Example:

\b
  neuroncompile store stats --json
"""

GC = """Remove what nothing needs. Without --yes, only say what that would be.

What has a name, a pin, a process that uses it, or was used within the grace period stays.

Examples:

\b
  neuroncompile store gc
  neuroncompile store gc --max-size 20G --yes
  neuroncompile store gc --max-age 30d --keep-last 3 --yes
"""

PIN = """Keep an artifact, whatever its age, until it is unpinned.

Examples:

\b
  neuroncompile store pin 3f9a1c20
  neuroncompile store pin 3f9a1c20 --name production
"""

UNPIN = """Take a pin away, by its name or by the key it keeps.

Example:

\b
  neuroncompile store unpin production
"""

RM = """Remove artifacts at once, with the files that only they have.

Examples:

\b
  neuroncompile store rm 3f9a1c20
  neuroncompile store rm production --force
"""

VERIFY = """Hash every file again and follow every name; exit 7 if something is wrong.

Examples:

\b
  neuroncompile store verify
  neuroncompile store verify --repair
"""

Key = Annotated[str, typer.Argument(metavar="KEY", help="8 or more hex digits, or a ref.")]


def ls(
    ctx: typer.Context,
    kind: Annotated[str, typer.Option("--kind", metavar="KIND", help=KINDS)] = "",
    match: Annotated[
        str, typer.Option("--match", metavar="TEXT", help="Only those whose line has this text.")
    ] = "",
    unused: Annotated[
        str, typer.Option("--unused", metavar="AGE", help="Only those not used for 30d, 12h, …")
    ] = "",
    sort: Annotated[
        str, typer.Option("--sort", metavar="BY", help="used, size, unique, kind or key.")
    ] = "used",
    limit: Annotated[int, typer.Option("--limit", min=0, help="At most so many; 0 for all.")] = 0,
) -> int:
    from neuroncompile.pipeline.inspect_store import ls_command

    state: State = ctx.obj
    return ls_command(
        state.settings(),
        state.output,
        kind=kind or None,
        match=match,
        unused=unused,
        sort=sort,
        limit=limit,
    )


def show(ctx: typer.Context, key: Key) -> int:
    from neuroncompile.pipeline.inspect_store import show_command

    state: State = ctx.obj
    return show_command(key, state.settings(), state.output)


def path(ctx: typer.Context, key: Key) -> int:
    from neuroncompile.pipeline.inspect_store import path_command

    state: State = ctx.obj
    return path_command(key, state.settings(), state.output)


def du(ctx: typer.Context) -> int:
    from neuroncompile.pipeline.store_space import du_command

    state: State = ctx.obj
    return du_command(state.settings(), state.output)


def stats(ctx: typer.Context) -> int:
    from neuroncompile.pipeline.store_space import stats_command

    state: State = ctx.obj
    return stats_command(state.settings(), state.output)


def gc(
    ctx: typer.Context,
    max_size: Annotated[
        str, typer.Option("--max-size", metavar="SIZE", help="Least recently used go first.")
    ] = "",
    max_age: Annotated[
        str, typer.Option("--max-age", metavar="AGE", help="Those not used for 30d, 12h, … go.")
    ] = "",
    grace: Annotated[
        str, typer.Option("--grace", metavar="AGE", help="What is younger stays  [default: 24h]")
    ] = "",
    keep: Annotated[
        list[str] | None, typer.Option("--keep", metavar="KEY", help="Stays; may be repeated.")
    ] = None,
    keep_last: Annotated[
        int, typer.Option("--keep-last", min=0, help="So many of each kind stay.")
    ] = 0,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do it.")] = False,
) -> int:
    from neuroncompile.pipeline.store_space import gc_command

    state: State = ctx.obj
    return gc_command(
        state.settings(),
        state.output,
        max_size=max_size,
        max_age=max_age,
        grace=grace,
        keep=tuple(keep or ()),
        keep_last=keep_last,
        yes=yes,
    )


def pin(
    ctx: typer.Context,
    key: Key,
    name: Annotated[str, typer.Option("--name", help="The pin's name  [default: its key]")] = "",
) -> int:
    from neuroncompile.pipeline.store_care import pin_command

    state: State = ctx.obj
    return pin_command(key, name, state.settings(), state.output)


def unpin(ctx: typer.Context, name: Annotated[str, typer.Argument(metavar="NAME|KEY")]) -> int:
    from neuroncompile.pipeline.store_care import unpin_command

    state: State = ctx.obj
    return unpin_command(name, state.settings(), state.output)


def rm(
    ctx: typer.Context,
    keys: Annotated[list[str], typer.Argument(metavar="KEY...")],
    force: Annotated[bool, typer.Option("--force", help="Also what is named or in use.")] = False,
) -> int:
    from neuroncompile.pipeline.store_care import rm_command

    state: State = ctx.obj
    return rm_command(keys, state.settings(), state.output, force=force)


def verify(
    ctx: typer.Context,
    repair: Annotated[bool, typer.Option("--repair", help="Set aside what is broken.")] = False,
) -> int:
    from neuroncompile.pipeline.store_care import verify_command

    state: State = ctx.obj
    return verify_command(state.settings(), state.output, repair=repair)
