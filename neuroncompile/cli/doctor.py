"""`neuroncompile doctor`."""

from __future__ import annotations

from typing import Annotated

import typer

from neuroncompile.cli import options as o
from neuroncompile.cli.state import State

__all__ = ["register"]

EXAMPLES = """
Toolchain, libraries, driver, devices, memory, disk, store, tiers and variables: what is wrong, why
it matters, and the command that mends it. Exit 10 when the target cannot be run here; with
--for build, when it cannot be compiled for.

Examples:

\b
  neuroncompile doctor
  neuroncompile doctor --target trn2 --toolchain ./sdk.toml
  neuroncompile doctor --target trn2 --for build --json
"""


def register(app: typer.Typer, name: str, summary: str, epilog: str) -> None:
    """Add the command to `app`."""
    text = f"{summary[0].upper()}{summary[1:]}.\n{EXAMPLES}"
    app.command(name, help=text, short_help=summary, epilog=epilog)(doctor)


def doctor(
    ctx: typer.Context,
    target: o.Target = "",
    toolchain: o.ToolchainName = "",
    purpose: Annotated[
        str, typer.Option("--for", metavar="build|run", help="What has to be possible.")
    ] = "run",
) -> int:
    from neuroncompile.errors import NeuronCompileError, UsageError
    from neuroncompile.pipeline.doctor import doctor_command
    from neuroncompile.settings import without_settings

    if purpose not in ("build", "run"):
        raise UsageError(f"--for {purpose!r} is neither build nor run", hint="--for build")
    state: State = ctx.obj
    refused = None
    try:
        settings = state.settings()
    except NeuronCompileError as error:  # a finding like any other
        settings, refused = without_settings(state.store, offline=state.offline), error
    return doctor_command(
        target, toolchain or None, settings, state.output, purpose=purpose, refused=refused
    )
