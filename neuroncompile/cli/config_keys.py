"""`neuroncompile config keys`."""

from __future__ import annotations

from typing import Annotated

import typer

from neuroncompile.cli.state import State

__all__ = ["register"]

KEYS = """List every keyword of the neuron config, or describe one.

A nested keyword is named with its table (on_device_sampling_config.top_k), as --set takes it; the
bare name will do where it stands once.

Examples:

\b
  neuroncompile config keys
  neuroncompile config keys seq_len
  neuroncompile config keys global_topk --json
"""


def register(group: typer.Typer, epilog: str = "") -> None:
    """Add the command to the `config` group."""
    group.command("keys", help=KEYS, epilog=epilog or None)(keys)


def keys(
    ctx: typer.Context,
    name: Annotated[str, typer.Argument(metavar="[NAME]", help="Default: all of them.")] = "",
) -> int:
    from neuroncompile.pipeline.config_keys import config_keys_command

    state: State = ctx.obj
    return config_keys_command(name or None, state.output)
