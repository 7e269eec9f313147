"""`neuroncompile config`."""

from __future__ import annotations

from typing import Annotated

import typer

from neuroncompile.cli import config_keys
from neuroncompile.cli import options as o
from neuroncompile.cli.state import State

__all__ = ["register"]

SHOW = """Show every effective value of a program's config, and which layer set it.

default ← model ← vLLM ← recipe ← environment ← flag ← override ← --set

Examples:

\b
  neuroncompile config show smollm2-135m
  neuroncompile config show llama-3.3-70b-trn2 --batch-size 8 --changed
  neuroncompile config show ./my-model --target trn2 --max-num-seqs 16 --json
"""

DIFF = """Show what differs between two programs, and what of it changes the key.

Each is a model, a recipe, a KEY of the store, or a file with a spec.

Examples:

\b
  neuroncompile config diff llama-3.1-8b-trn1 llama-3.1-8b-inf2
  neuroncompile config diff 'grid[batch_size=1]' 'grid[batch_size=4]'
  neuroncompile config diff 3f9a1c20 smollm2-135m --json
"""

Side = Annotated[str, typer.Argument(metavar="A", help="Model, recipe, KEY or spec file.")]
Other = Annotated[str, typer.Argument(metavar="B", help="What to compare it with.")]


def register(app: typer.Typer, name: str, summary: str, epilog: str) -> None:
    """Add the group to `app`."""
    group = typer.Typer(help=f"{summary[0].upper()}{summary[1:]}.", no_args_is_help=True)
    group.command("show", help=SHOW, epilog=epilog)(show)
    group.command("diff", help=DIFF, epilog=epilog)(diff)
    config_keys.register(group, epilog)
    app.add_typer(group, name=name, short_help=summary)


def show(
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
    changed: Annotated[
        bool, typer.Option("--changed", help="Only what a default has not decided.")
    ] = False,
) -> int:
    from neuroncompile.pipeline.config_command import config_show_command

    state: State = ctx.obj
    return config_show_command(
        o.build_request(ctx.params),
        state.settings(toolchain=toolchain or None),
        state.output,
        changed=changed,
    )


def diff(
    ctx: typer.Context,
    left: Side,
    right: Other,
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
    toolchain: o.ToolchainName = "",
    model_class: o.ModelClass = "",
    draft_model: o.DraftModel = "",
    adapter: o.Adapter = None,
) -> int:
    from neuroncompile.pipeline.config_command import config_diff_command

    state: State = ctx.obj
    return config_diff_command(
        left,
        right,
        o.build_request({**ctx.params, "model": left, "revision": ""}),
        state.settings(toolchain=toolchain or None),
        state.output,
    )
