"""`neuroncompile store export|import`."""

from __future__ import annotations

from typing import Annotated

import typer

from neuroncompile.cli.state import State

__all__ = ["register"]


def register(group: typer.Typer, epilog: str) -> None:
    """Add both commands to the `store` group."""
    group.command("export", help=EXPORT, epilog=epilog)(export)
    group.command("import", help=IMPORT, epilog=epilog)(import_)


EXPORT = """Write artifacts to a tar, a directory or a pipe.

What is written is an OCI image layout: skopeo, oras and `store import` read it. A program is
complete in itself; its model's weights are not part of it. The same artifacts give the same
bytes. Names go along; pins stay.

Examples:

\b
  neuroncompile store export 3f9a1c20 -o program.tar
  neuroncompile store export --kind compile -o programs.tar
  neuroncompile store export --all -o layout/
  neuroncompile store export --all | ssh HOST neuroncompile store import -
"""

IMPORT = """Take in artifacts from an archive or another store.

PATH is what `store export` wrote, any other OCI image layout of artifacts, a store, or - for a
tar on stdin.

Every byte is checked against its digest and every artifact against its key, before anything is
kept; what is wrong is refused as a whole. That proves that artifacts are what they are called,
not that they are good. Compiled programs are native code that runs when it is loaded, so import
only what comes from where you would install a package from.

Pickles and TorchScript (.pt, .pth, .bin, .pkl; also by content) are refused without --trust:
they are code that passes for data, and no program of the cpu target holds any.

Examples:

\b
  neuroncompile store import program.tar
  neuroncompile store import /mnt/usb/layout
  neuroncompile store import /mnt/other-host/store
  ssh HOST neuroncompile store export --all | neuroncompile store import -
"""


def export(
    ctx: typer.Context,
    keys: Annotated[
        list[str] | None,
        typer.Argument(metavar="[KEY]...", help="8 or more hex digits each, or refs."),
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="All, packed weights too.")] = False,
    kind: Annotated[
        str, typer.Option("--kind", metavar="KIND", help="All of compile, graph, pack or shard.")
    ] = "",
    target: Annotated[
        str,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE|DIR/",
            help="A tar, or a directory if it ends in /. Default: stdout, if no terminal.",
        ),
    ] = "",
) -> int:
    from neuroncompile.pipeline.archive_command import export_command

    state: State = ctx.obj
    return export_command(
        keys or [], everything, kind or None, target or None, state.settings(), state.output
    )


def import_(
    ctx: typer.Context,
    path: Annotated[
        str, typer.Argument(metavar="PATH", help="A tar, a directory, or - for stdin.")
    ],
    trust: Annotated[bool, typer.Option("--trust", help="Take pickles and TorchScript.")] = False,
) -> int:
    from neuroncompile.pipeline.archive_command import import_command

    state: State = ctx.obj
    return import_command(path, trust, state.settings(), state.output)
