"""`neuroncompile export`."""

from __future__ import annotations

from typing import Annotated

import typer

from neuroncompile.cli import options as o
from neuroncompile.cli.state import State

__all__ = ["register"]

EXAMPLES = """
The directory holds model.pt, a neuron_config.json written for exactly this model, its tokenizer,
and with --shards the weights; nothing of the store is linked. It is read-only, so that a loader
that does not like it fails instead of compiling into it.

Examples:

\b
  neuroncompile export 3f9a1c20 ./served --for nxdi --model ./my-fine-tune
  neuroncompile export 3f9a1c20 ./served --for vllm:0.11 --model org/name@main --shards
  neuroncompile export 3f9a1c20 ./served --for vllm:0.11 --model org/name --model-path /models/name
"""


def register(app: typer.Typer, name: str, summary: str, epilog: str) -> None:
    """Add the command to `app`."""
    text = f"{summary[0].upper()}{summary[1:]}.\n{EXAMPLES}"
    app.command(name, help=text, short_help=summary, epilog=epilog)(export)


def export(
    ctx: typer.Context,
    key: Annotated[str, typer.Argument(metavar="KEY", help="8 or more hex digits, or a ref.")],
    directory: Annotated[str, typer.Argument(metavar="DIR", help="New, or empty.")],
    consumer: Annotated[
        str, typer.Option("--for", metavar="nxdi|vllm:VERSION", help="Who will load it.")
    ],
    model: Annotated[
        str, typer.Option("--model", "-m", metavar="REF", help="Whose weights are served.")
    ],
    revision: o.Revision = "",
    model_path: Annotated[
        str, typer.Option(metavar="DIR", help="Its directory on the serving host, if another.")
    ] = "",
    draft_model: Annotated[
        str, typer.Option(metavar="REF", help="The draft, where the program has one.")
    ] = "",
    draft_path: Annotated[
        str, typer.Option(metavar="DIR", help="Its directory on the serving host, if another.")
    ] = "",
    quantized_path: Annotated[
        str, typer.Option(metavar="DIR", help="The quantised checkpoint on the serving host.")
    ] = "",
    shards: Annotated[
        bool, typer.Option("--shards", help="Ship the weights that build --shard has cut.")
    ] = False,
    copy: Annotated[bool, typer.Option("--copy", help="Leave the files writable.")] = False,
) -> int:
    from neuroncompile.pipeline.export_command import ExportRequest, export_command

    state: State = ctx.obj
    request = ExportRequest(
        key=key,
        directory=directory,
        consumer=consumer,
        model=model,
        revision=revision or None,
        model_path=model_path or None,
        draft=draft_model or None,
        draft_path=draft_path or None,
        quantized_path=quantized_path or None,
        shards=shards,
        copy=copy,
    )
    return export_command(request, state.settings(), state.output)
