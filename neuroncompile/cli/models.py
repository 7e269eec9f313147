"""`neuroncompile models ls`."""

from __future__ import annotations

import typer

from neuroncompile.cli.state import State

__all__ = ["register"]

LS = """List the model families: their classes, the NxDI releases that have them, and cpu support.

Example:

\b
  neuroncompile models ls
"""


def register(app: typer.Typer, name: str, summary: str, epilog: str) -> None:
    """Add the group to `app`."""
    group = typer.Typer(help=f"{summary[0].upper()}{summary[1:]}.", no_args_is_help=True)
    group.command("ls", help=LS, epilog=epilog)(ls)
    app.add_typer(group, name=name, short_help=summary)


def ls(ctx: typer.Context) -> int:
    from neuroncompile.pipeline.catalogue import models_ls_command

    state: State = ctx.obj
    return models_ls_command(state.output)
