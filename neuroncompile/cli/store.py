"""`neuroncompile store ls|show|path`."""

from __future__ import annotations

from typing import Annotated

import typer

from neuroncompile.cli.state import State

__all__ = ["register"]

KINDS = "compile (programs), graph (their pieces) or pack (derived weights)"


def register(app: typer.Typer, name: str, summary: str, epilog: str) -> None:
    """Add the group to `app`."""
    group = typer.Typer(help=f"{summary[0].upper()}{summary[1:]}.", no_args_is_help=True)
    group.command("ls", help=LS, epilog=epilog)(ls)
    group.command("show", help=SHOW, epilog=epilog)(show)
    group.command("path", help=PATH, epilog=epilog)(path)
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

Key = Annotated[str, typer.Argument(metavar="KEY", help="8 or more hex digits, or a ref.")]


def ls(
    ctx: typer.Context,
    kind: Annotated[str, typer.Option("--kind", metavar="KIND", help=KINDS)] = "",
) -> int:
    from neuroncompile.pipeline.inspect_store import ls_command

    state: State = ctx.obj
    return ls_command(kind or None, state.settings(), state.output)


def show(ctx: typer.Context, key: Key) -> int:
    from neuroncompile.pipeline.inspect_store import show_command

    state: State = ctx.obj
    return show_command(key, state.settings(), state.output)


def path(ctx: typer.Context, key: Key) -> int:
    from neuroncompile.pipeline.inspect_store import path_command

    state: State = ctx.obj
    return path_command(key, state.settings(), state.output)
