"""`neuroncompile toolchain ls|show|freeze`."""

from __future__ import annotations

from typing import Annotated

import typer

from neuroncompile.cli import options as o
from neuroncompile.cli.state import State

__all__ = ["register"]

LS = """List toolchains: the named ones, this interpreter's, and the SDKs that are known.

Examples:

\b
  neuroncompile toolchain ls
  neuroncompile toolchain ls --json
"""

SHOW = """Show a toolchain's packages: this interpreter's, a frozen file's, or an SDK's.

Examples:

\b
  neuroncompile toolchain show
  neuroncompile toolchain show sdk-2.28
  neuroncompile toolchain show ./cpu.toml --json
"""

FREEZE = """Write a toolchain's exact versions to a file.

A host without any compiler computes the same keys from that file. With --name it becomes one of
this user's named toolchains, its interpreter included.

Examples:

\b
  neuroncompile toolchain freeze --python /opt/neuron/bin/python -o sdk.toml
  neuroncompile toolchain freeze --python /opt/neuron/bin/python --name neuron
  neuroncompile toolchain freeze -o cpu.toml
  neuroncompile build smollm2-135m --toolchain ./cpu.toml --check
"""


def register(app: typer.Typer, name: str, summary: str, epilog: str) -> None:
    """Add the group to `app`."""
    group = typer.Typer(help=f"{summary[0].upper()}{summary[1:]}.", no_args_is_help=True)
    group.command("ls", help=LS, epilog=epilog)(ls)
    group.command("show", help=SHOW, epilog=epilog)(show)
    group.command("freeze", help=FREEZE, epilog=epilog)(freeze)
    app.add_typer(group, name=name, short_help=summary)


def ls(ctx: typer.Context) -> int:
    from neuroncompile.pipeline.toolchain_command import toolchain_ls_command

    state: State = ctx.obj
    return toolchain_ls_command(state.settings(), state.output)


def show(
    ctx: typer.Context,
    toolchain: Annotated[
        str, typer.Argument(metavar="[NAME|FILE]", help="Default: this interpreter's.")
    ] = "",
    target: o.Target = "cpu",
) -> int:
    from neuroncompile.pipeline.toolchain_command import toolchain_show_command

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
    python: Annotated[
        str, typer.Option(metavar="PATH", help="Interpreter with the Neuron SDK.")
    ] = "",
    as_name: Annotated[
        str, typer.Option("--name", metavar="NAME", help="Keep it as --toolchain NAME.")
    ] = "",
) -> int:
    from neuroncompile.pipeline.toolchain_command import toolchain_freeze_command

    state: State = ctx.obj
    return toolchain_freeze_command(
        toolchain or None,
        target,
        out or None,
        state.settings(),
        state.output,
        python=python or None,
        as_name=as_name or None,
    )
