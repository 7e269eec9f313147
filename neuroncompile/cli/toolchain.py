"""`neuroncompile toolchain show|freeze`."""

from __future__ import annotations

from typing import Annotated

import typer

from neuroncompile.cli import options as o
from neuroncompile.cli.state import State

__all__ = ["register"]

SHOW = """Show a toolchain's packages: this interpreter's, a frozen file's, or an SDK's.

Examples:

\b
  neuroncompile toolchain show
  neuroncompile toolchain show sdk-2.28
  neuroncompile toolchain show ./cpu.toml --json
"""

FREEZE = """Write a toolchain's exact versions to a file.

A host without any compiler computes the same keys from that file.

Examples:

\b
  neuroncompile toolchain freeze -o cpu.toml
  neuroncompile build smollm2-135m --toolchain ./cpu.toml --check
"""


def register(app: typer.Typer, name: str, summary: str, epilog: str) -> None:
    """Add the group to `app`."""
    group = typer.Typer(help=f"{summary[0].upper()}{summary[1:]}.", no_args_is_help=True)
    group.command("show", help=SHOW, epilog=epilog)(show)
    group.command("freeze", help=FREEZE, epilog=epilog)(freeze)
    app.add_typer(group, name=name, short_help=summary)


def show(
    ctx: typer.Context,
    toolchain: Annotated[
        str, typer.Argument(metavar="[NAME|FILE]", help="Default: this interpreter's.")
    ] = "",
    target: o.Target = "cpu",
) -> int:
    from neuroncompile.pipeline.catalogue import toolchain_show_command

    state: State = ctx.obj
    return toolchain_show_command(toolchain or None, target, state.settings(), state.output)


def freeze(
    ctx: typer.Context,
    toolchain: Annotated[
        str, typer.Argument(metavar="[NAME|FILE]", help="Default: this interpreter's.")
    ] = "",
    target: o.Target = "cpu",
    out: Annotated[
        str, typer.Option("--output", "-o", metavar="FILE", help="Default: print it.")
    ] = "",
) -> int:
    from neuroncompile.pipeline.catalogue import toolchain_freeze_command

    state: State = ctx.obj
    return toolchain_freeze_command(
        toolchain or None, target, out or None, state.settings(), state.output
    )
