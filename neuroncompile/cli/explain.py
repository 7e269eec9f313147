"""`neuroncompile explain`."""

from __future__ import annotations

from typing import Annotated

import typer

from neuroncompile.cli.state import State

__all__ = ["register"]

EXAMPLES = """
With one key: what it is made of, and how it differs from the nearest other artifact.
With two: every field that differs.

Examples:

\b
  neuroncompile explain 3f9a1c20
  neuroncompile explain 3f9a1c20 77b0d4e1 --json
"""


def register(app: typer.Typer, name: str, summary: str, epilog: str) -> None:
    """Add the command to `app`."""
    text = f"{summary[0].upper()}{summary[1:]}.\n{EXAMPLES}"
    app.command(name, help=text, short_help=summary, epilog=epilog)(explain)


def explain(
    ctx: typer.Context,
    key: Annotated[str, typer.Argument(metavar="KEY", help="8 or more hex digits, or a ref.")],
    other: Annotated[
        str | None, typer.Argument(metavar="[KEY]", help="The key to compare.")
    ] = None,
) -> int:
    from neuroncompile.pipeline.inspect_store import explain_command

    state: State = ctx.obj
    return explain_command(key, other, state.settings(), state.output)
