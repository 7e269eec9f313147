"""`neuroncompile lock`."""

from __future__ import annotations

from typing import Annotated

import typer

from neuroncompile.cli import options as o
from neuroncompile.cli.state import State

__all__ = ["register"]

EXAMPLES = """
Written down are the commit of every model, draft and adapter, the toolchain's exact versions, and
each program's key with what it is made of. While the file is there (neuroncompile.lock here, or
$NEURONCOMPILE_LOCK), build, run, plan and prewarm take revisions and toolchain from it; flags win.
`build --locked` refuses what leads to another key.

Examples:

\b
  neuroncompile lock smollm2-135m
  neuroncompile lock recipes/*.toml --check          exit 3 if something has changed
  neuroncompile lock org/name --target trn2 --toolchain ./sdk.toml
  neuroncompile build smollm2-135m --locked
"""


def register(app: typer.Typer, name: str, summary: str, epilog: str) -> None:
    """Add the command to `app`."""
    text = f"{summary[0].upper()}{summary[1:]}.\n{EXAMPLES}"
    app.command(name, help=text, short_help=summary, epilog=epilog)(lock)


def lock(
    ctx: typer.Context,
    references: Annotated[
        list[str], typer.Argument(metavar="RECIPE|MODEL…", help="Each becomes an entry.")
    ],
    target: o.Target = "",
    sets: o.Set = None,
    revision: o.Revision = "",
    toolchain: o.ToolchainName = "",
    out: Annotated[
        str, typer.Option("--output", "-o", metavar="FILE", help="Instead of the usual one.")
    ] = "",
    check: Annotated[
        bool, typer.Option("--check", help="Write nothing; exit 3 if the file would change.")
    ] = False,
) -> int:
    from neuroncompile.pipeline.lock_command import lock_command
    from neuroncompile.pipeline.request import BuildRequest

    state: State = ctx.obj
    template = BuildRequest(
        model="",
        target=target or None,
        sets=tuple(sets or ()),
        revision=revision or None,
        toolchain=toolchain or None,
    )
    return lock_command(
        references,
        state.settings(toolchain=toolchain or None),
        state.output,
        template=template,
        out=out or None,
        check=check,
    )
