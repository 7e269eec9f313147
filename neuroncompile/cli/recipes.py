"""`neuroncompile recipes ls|show|check`."""

from __future__ import annotations

from typing import Annotated

import typer

from neuroncompile.cli.state import State

__all__ = ["register"]

LS = """List the recipes that can be named, and where each comes from.

Example:

\b
  neuroncompile recipes ls
"""

SHOW = """Show one recipe after inheritance.

Example:

\b
  neuroncompile recipes show smollm2-135m
"""

CHECK = """Check recipes as a build would before it begins; nothing is downloaded.

Schema, keywords, combinations, target, toolchain and known issues, for every point of a matrix.
Exit 5 when one cannot be built.

Examples:

\b
  neuroncompile recipes check                        all that can be named
  neuroncompile recipes check ./mine.toml --json
"""


def register(app: typer.Typer, name: str, summary: str, epilog: str) -> None:
    """Add the group to `app`."""
    group = typer.Typer(help=f"{summary[0].upper()}{summary[1:]}.", no_args_is_help=True)
    group.command("ls", help=LS, epilog=epilog)(ls)
    group.command("show", help=SHOW, epilog=epilog)(show)
    group.command("check", help=CHECK, epilog=epilog)(check)
    app.add_typer(group, name=name, short_help=summary)


def ls(ctx: typer.Context) -> int:
    from neuroncompile.pipeline.catalogue import recipes_ls_command

    state: State = ctx.obj
    return recipes_ls_command(state.output)


def show(
    ctx: typer.Context,
    recipe: Annotated[str, typer.Argument(metavar="RECIPE", help="Name or path.")],
) -> int:
    from neuroncompile.pipeline.catalogue import recipes_show_command

    state: State = ctx.obj
    return recipes_show_command(recipe, state.output)


def check(
    ctx: typer.Context,
    recipes: Annotated[
        list[str] | None, typer.Argument(metavar="[RECIPE…]", help="Names or paths; default: all.")
    ] = None,
) -> int:
    from neuroncompile.pipeline.recipes_check import recipes_check_command

    state: State = ctx.obj
    return recipes_check_command(recipes or [], state.settings(), state.output)
