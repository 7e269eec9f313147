"""`neuroncompile env`."""

from __future__ import annotations

from typing import Annotated

import typer

from neuroncompile.cli.state import State

__all__ = ["register"]

EXAMPLES = """
vLLM takes a program's own config without comparing it to its options, while its scheduler and
cache follow the options; these are the ones that say the same. Every file
in --dir is checked first. From vLLM's Neuron plugin 0.21 on there is no such hand-over, and this
says why.

Examples:

\b
  eval "$(neuroncompile env 3f9a1c20 --for vllm:0.11 --dir /srv/served)"
  neuroncompile env 3f9a1c20 --for vllm:0.11 --dir /srv/served --format docker > served.env
  neuroncompile env 3f9a1c20 --for vllm:0.11 --json
"""


def register(app: typer.Typer, name: str, summary: str, epilog: str) -> None:
    """Add the command to `app`."""
    text = f"{summary[0].upper()}{summary[1:]}.\n{EXAMPLES}"
    app.command(name, help=text, short_help=summary, epilog=epilog)(env)


def env(
    ctx: typer.Context,
    key: Annotated[str, typer.Argument(metavar="KEY", help="8 or more hex digits, or a ref.")],
    consumer: Annotated[
        str, typer.Option("--for", metavar="vllm:VERSION", help="Who will serve it.")
    ],
    directory: Annotated[
        str, typer.Option("--dir", metavar="DIR", help="What `export` has written.")
    ] = "",
    draft: Annotated[
        str, typer.Option("--draft-model", metavar="PATH", help="The draft on the serving host.")
    ] = "",
    form: Annotated[
        str, typer.Option("--format", metavar="shell|docker|json", help="How to print it.")
    ] = "shell",
) -> int:
    from neuroncompile.pipeline.handover import env_command

    state: State = ctx.obj
    return env_command(
        key,
        consumer,
        state.settings(),
        state.output,
        directory=directory or None,
        draft=draft or None,
        form=form,
    )
