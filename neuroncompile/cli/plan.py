"""`neuroncompile plan`."""

from __future__ import annotations

from typing import Annotated

import typer

from neuroncompile.cli import options as o
from neuroncompile.cli.state import State

__all__ = ["register"]

EXAMPLES = """
Graphs, memory of a core, host memory and disk, minutes of compiling and, where it does not fit,
what to change. Nothing is compiled, no weights are read; a directory or file with only a
config.json will do, of any family.

Examples:

\b
  neuroncompile plan llama-3.3-70b-trn2
  neuroncompile plan llama-3.3-70b-trn2 --batch-size 64 --price 1.53
  neuroncompile plan ./config.json --target trn2.48xlarge --tp 64 --seq-len 8192
  neuroncompile plan ./my-model --target inf2.xlarge --check      exit 5 when it does not fit

\b
green: 90 % of a core's memory or less.  amber: all of it; it may not load.  red: more.
"""


def register(app: typer.Typer, name: str, summary: str, epilog: str) -> None:
    """Add the command to `app`."""
    text = f"{summary[0].upper()}{summary[1:]}.\n{EXAMPLES}"
    app.command(name, help=text, short_help=summary, epilog=epilog)(plan)


def plan(
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
    jobs: o.Jobs = None,
    draft_model: Annotated[
        str,
        typer.Option(
            "--draft-model", "--draft", metavar="MODEL", help="A draft model on the same cores."
        ),
    ] = "",
    price: Annotated[
        float | None,
        typer.Option("--price", metavar="DOLLARS", help="Of an hour of the host that compiles."),
    ] = None,
    check: Annotated[
        bool, typer.Option("--check", help="Exit 5 when it does not fit (red).")
    ] = False,
) -> int:
    from neuroncompile.pipeline.plan_command import plan_command

    state: State = ctx.obj
    # A draft is weighed here whatever becomes of it in a key.
    params = {**ctx.params, "model_class": "", "draft_model": "", "adapter": None}
    request = o.build_request(params)
    settings = state.settings(jobs=jobs, toolchain=toolchain or None)
    return plan_command(
        request, settings, state.output, draft=draft_model or None, price=price, check=check
    )
