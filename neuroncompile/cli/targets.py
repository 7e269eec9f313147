"""`neuroncompile targets ls|show`."""

from __future__ import annotations

from typing import Annotated

import typer

from neuroncompile.cli.state import State

__all__ = ["register"]

LS = """List the targets a program can be compiled for, with devices, cores and memory.

Cores are logical ones at the default LNC; memory is in GiB.

Example:

\b
  neuroncompile targets ls --json
"""

SHOW = """Show one target: cores and memory at each LNC, legal tp_degree, dtypes, host and SDKs.

Examples:

\b
  neuroncompile targets show trn2.48xlarge
  neuroncompile targets show inf2 --json
"""


def register(app: typer.Typer, name: str, summary: str, epilog: str) -> None:
    """Add the group to `app`."""
    group = typer.Typer(help=f"{summary[0].upper()}{summary[1:]}.", no_args_is_help=True)
    group.command("ls", help=LS, epilog=epilog)(ls)
    group.command("show", help=SHOW, epilog=epilog)(show)
    app.add_typer(group, name=name, short_help=summary)


def ls(ctx: typer.Context) -> int:
    from neuroncompile.pipeline.targets_command import targets_ls_command

    state: State = ctx.obj
    return targets_ls_command(state.output)


def show(
    ctx: typer.Context,
    target: Annotated[
        str, typer.Argument(metavar="NAME", help="A chip, an instance, or cpu:LEVEL.")
    ],
) -> int:
    from neuroncompile.pipeline.targets_command import targets_show_command

    state: State = ctx.obj
    return targets_show_command(target, state.output)
