"""`neuroncompile build`."""

from __future__ import annotations

from typing import Annotated

import typer

from neuroncompile.cli import options as o
from neuroncompile.cli.state import State

__all__ = ["register"]

EXAMPLES = """
Examples:

\b
  neuroncompile build smollm2-135m                     a recipe, on this machine
  neuroncompile build ./my-model --seq-len 2048        a local directory
  neuroncompile build org/name@main --target trn2 --tensor-parallel-size 8
  neuroncompile build llama-3.3-70b-trn2 --dry-run     nothing downloaded or compiled
  neuroncompile build smollm2-135m --check             exit 0 if compiled, 3 if not
  neuroncompile build org/name --target trn2 --toolchain ./sdk.toml --shard
  neuroncompile build smollm2-135m --tier s3://bucket/prefix --push
"""


def register(app: typer.Typer, name: str, summary: str, epilog: str) -> None:
    """Add the command to `app`."""
    text = f"{summary[0].upper()}{summary[1:]}.\n{EXAMPLES}"
    app.command(name, help=text, short_help=summary, epilog=epilog)(build)


def build(
    ctx: typer.Context,
    model: o.Model,
    target: o.Target = "",
    dtype: o.Dtype = "",
    batch_size: o.BatchSize = None,
    seq_len: o.SeqLen = None,
    max_context_length: o.MaxContextLength = None,
    context_encoding_buckets: o.ContextBuckets = "",
    token_generation_buckets: o.TokenBuckets = "",
    enable_bucketing: o.EnableBucketing = None,
    tensor_parallel_size: o.TensorParallel = None,
    logical_nc_config: o.Lnc = None,
    optlevel: o.OptLevel = "",
    sets: o.Set = None,
    overrides: o.Overrides = None,
    vllm: o.Vllm = False,
    max_num_seqs: o.MaxNumSeqs = None,
    max_model_len: o.MaxModelLen = None,
    num_speculative_tokens: o.SpeculativeTokens = None,
    allow_unknown: o.AllowUnknown = False,
    allow_head_padding: o.AllowHeadPadding = False,
    revision: o.Revision = "",
    toolchain: o.ToolchainName = "",
    model_class: o.ModelClass = "",
    draft_model: o.DraftModel = "",
    adapter: o.Adapter = None,
    jobs: o.Jobs = None,
    retry_failed: o.RetryFailed = False,
    locked: o.Locked = False,
    require_cached: o.RequireCached = False,
    tier: o.Tier = None,
    push: Annotated[
        bool, typer.Option("--push", help="Bring the result into every tier as well.")
    ] = False,
    fallback: Annotated[
        bool,
        typer.Option(
            "--fallback",
            help="When the compiler fails, build with a documented way around (Neuron).",
        ),
    ] = False,
    reproduce: Annotated[
        int | None,
        typer.Option(
            "--reproduce",
            metavar="N",
            help="Compile N times from nothing; say how often it fails (Neuron).",
        ),
    ] = None,
    reduce: Annotated[
        bool,
        typer.Option("--reduce", help="Shrink a config that fails, while it fails so (Neuron)."),
    ] = False,
    shard: Annotated[
        bool,
        typer.Option("--shard", help="Cut the weights into ranks as well and keep them (Neuron)."),
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show config with origins, graphs and key; exit 0.")
    ] = False,
    check: Annotated[
        bool,
        typer.Option(
            "--check", help="Only look, here and in tiers: exit 0 if it is there, 3 if not."
        ),
    ] = False,
) -> int:
    from neuroncompile.pipeline.build_command import build_command

    state: State = ctx.obj
    request = o.build_request(ctx.params)
    settings = state.settings(
        jobs=jobs, toolchain=toolchain or None, tiers=tier, retry_failed=retry_failed
    )
    return build_command(
        request,
        settings,
        state.output,
        dry_run=dry_run,
        check=check,
        require_cached=require_cached,
        push=push,
        shard=shard,
        reproduce=reproduce,
        reduce=reduce,
    )
