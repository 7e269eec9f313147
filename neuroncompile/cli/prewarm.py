"""`neuroncompile prewarm`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from neuroncompile.cli import options as o
from neuroncompile.cli.state import State

__all__ = ["register"]

DETAILS = """
Each recipe is one program, or one a point of its [matrix]. What is in the store or in a tier is
warm and left alone; the rest is built as `neuroncompile build` would. One that fails does not
stop the others, and the same command goes on after an interruption.

Exit code: 0 all warm or built; 3 something is cold and must not be compiled; 6 something
failed; the code of the failure itself when all that was tried failed with it; 130 interrupted.

The shard, if --shard does not say, is taken from AWS Batch, Kubernetes (with --of), Slurm,
GitLab CI, CircleCI or Buildkite.

Examples:

\b
  neuroncompile prewarm recipes/*.toml                 all of them, here
  neuroncompile prewarm smollm2-135m --check           exit 0 if warm, 3 if cold
  neuroncompile prewarm recipes --tier s3://bucket/prefix --push
  neuroncompile prewarm recipes --shard 2/4 --record warm.jsonl --junit warm.xml
  neuroncompile prewarm 'my-recipe[batch_size=4]'      one point of a matrix
"""


def register(app: typer.Typer, name: str, summary: str, epilog: str) -> None:
    """Add the command to `app`."""
    text = f"{summary[0].upper()}{summary[1:]}.\n{DETAILS}"
    app.command(name, help=text, short_help=summary, epilog=epilog)(prewarm)


def prewarm(
    ctx: typer.Context,
    recipes: Annotated[
        list[str],
        typer.Argument(
            metavar="RECIPE",
            help="Names or paths of recipes, directories of recipes, or points as NAME[a=1,b=2].",
        ),
    ],
    check: Annotated[
        bool,
        typer.Option("--check", help="Only look: exit 0 if all is warm, 3 if something is cold."),
    ] = False,
    tier: o.Tier = None,
    push: Annotated[
        bool, typer.Option("--push", help="Bring every program into every tier as well.")
    ] = False,
    pull: Annotated[
        bool, typer.Option("--pull", help="Bring here what only a tier has; else that is warm.")
    ] = False,
    require_cached: Annotated[
        bool,
        typer.Option(
            "--require-cached",
            help="Pull what a tier has, compile nothing; exit 3 if something is cold.",
        ),
    ] = False,
    shard: Annotated[
        str,
        typer.Option(
            "--shard", metavar="I/N", help="Only the I-th of N parts, counted from 1; 1/1 is all."
        ),
    ] = "",
    of: Annotated[
        int | None,
        typer.Option(
            "--of", metavar="N", min=1, help="How many jobs there are, where only the index is set."
        ),
    ] = None,
    fail_fast: Annotated[
        bool,
        typer.Option("--fail-fast/--keep-going", help="Stop at the first failure, or do not."),
    ] = False,
    record: Annotated[
        str,
        typer.Option("--record", metavar="FILE", help="Append a JSON line a program to FILE."),
    ] = "",
    junit: Annotated[
        str, typer.Option("--junit", metavar="FILE", help="Write JUnit XML to FILE at the end.")
    ] = "",
    toolchain: o.ToolchainName = "",
    jobs: o.Jobs = None,
    retry_failed: o.RetryFailed = False,
) -> int:
    from neuroncompile.pipeline.prewarm import Options, prewarm_command
    from neuroncompile.pipeline.prewarm_shard import shard_of

    state: State = ctx.obj
    options = Options(
        check=check,
        pull=pull,
        require_cached=require_cached,
        push=push,
        fail_fast=fail_fast,
        shard=shard_of(shard or None, of, os.environ),
        record=Path(record) if record else None,
        junit=Path(junit) if junit else None,
    )
    settings = state.settings(
        jobs=jobs, toolchain=toolchain or None, tiers=tier, retry_failed=retry_failed
    )
    return prewarm_command(recipes, options, settings, state.output)
