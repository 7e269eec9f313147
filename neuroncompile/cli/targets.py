"""`neuroncompile targets ls`."""

from __future__ import annotations

import typer

from neuroncompile.cli.state import State

__all__ = ["register"]

LS = """List the targets a program can be compiled for.

Example:

\b
  neuroncompile targets ls --json
"""


def register(app: typer.Typer, name: str, summary: str, epilog: str) -> None:
    """Add the group to `app`."""
    group = typer.Typer(help=f"{summary[0].upper()}{summary[1:]}.", no_args_is_help=True)
    group.command("ls", help=LS, epilog=epilog)(ls)
    app.add_typer(group, name=name, short_help=summary)


def ls(ctx: typer.Context) -> int:
    from neuroncompile.pipeline.catalogue import targets_ls_command

    state: State = ctx.obj
    return targets_ls_command(state.output)
