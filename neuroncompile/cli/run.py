"""`neuroncompile run`."""

from __future__ import annotations

from typing import Annotated

import typer

from neuroncompile.cli import options as o
from neuroncompile.cli.state import State

__all__ = ["register"]

EXAMPLES = """
Builds first if needed, then streams. Greedy unless sampling is asked for.

Examples:

\b
  neuroncompile run smollm2-135m --chat "What is the capital of France?"
  echo "Once upon a time" | neuroncompile run ./my-model --max-new-tokens 50
  neuroncompile run smollm2-135m --chat                    interactive, Ctrl-D ends
  neuroncompile run smollm2-135m --prompts asks.jsonl --batch-size 4 --json
  neuroncompile run smollm2-135m "Hi" --temperature 0.8 --top-p 0.9 --seed 1

\b
A line of --prompts FILE is {"prompt": "…"} or {"messages": [{"role": …, "content": …}]}, and
may carry temperature, top_k, top_p, seed, max_new_tokens and stop of its own.
"""


def register(app: typer.Typer, name: str, summary: str, epilog: str) -> None:
    """Add the command to `app`."""
    text = f"{summary[0].upper()}{summary[1:]}.\n{EXAMPLES}"
    app.command(name, help=text, short_help=summary, epilog=epilog)(run)


def run(
    ctx: typer.Context,
    model: o.Model,
    prompt: Annotated[
        str | None, typer.Argument(metavar="[PROMPT]", help="Text; - or nothing reads stdin.")
    ] = None,
    chat: Annotated[bool, typer.Option("--chat", help="Apply the model's chat template.")] = False,
    system: Annotated[str, typer.Option("--system", help="System message for --chat.")] = "",
    chat_template: Annotated[
        str, typer.Option("--chat-template", metavar="FILE", help="A jinja template of your own.")
    ] = "",
    prompts: Annotated[
        str, typer.Option("--prompts", metavar="FILE", help="One JSON object a line; - is stdin.")
    ] = "",
    max_new_tokens: Annotated[
        int | None, typer.Option("--max-new-tokens", help="At most so many  [default: what fits]")
    ] = None,
    temperature: Annotated[
        float | None, typer.Option("--temperature", help="0 is greedy  [default: 0]")
    ] = None,
    top_k: Annotated[
        int | None, typer.Option("--top-k", help="Draw among the k likeliest; 0 is off.")
    ] = None,
    top_p: Annotated[
        float | None, typer.Option("--top-p", help="Draw among the likeliest that sum to p.")
    ] = None,
    seed: Annotated[
        int | None, typer.Option("--seed", help="Same seed, same request: same tokens.")
    ] = None,
    greedy: Annotated[
        bool, typer.Option("--greedy", help="Greedy, whatever else is configured.")
    ] = False,
    stop: Annotated[
        list[str] | None,
        typer.Option("--stop", metavar="TEXT", help="End before this text; repeatable."),
    ] = None,
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
    artifact: Annotated[
        str,
        typer.Option(
            "--artifact",
            metavar="KEY",
            help="Run exactly this program of the store; an option that contradicts it is refused.",
        ),
    ] = "",
    tier: o.Tier = None,
) -> int:
    from neuroncompile.pipeline.run_command import RunRequest, run_command

    state: State = ctx.obj
    request = RunRequest(
        build=o.build_request(ctx.params),
        prompt=prompt,
        prompts_file=prompts or None,
        chat=chat,
        system=system or None,
        chat_template=chat_template or None,
        sampling={
            "temperature": 0.0 if greedy else temperature,
            "top_k": top_k,
            "top_p": top_p,
            "seed": seed,
            "max_new_tokens": max_new_tokens,
            "stop": tuple(stop) if stop else None,
        },
        require_cached=require_cached,
        artifact=artifact or None,
    )
    settings = state.settings(
        jobs=jobs, toolchain=toolchain or None, tiers=tier, retry_failed=retry_failed
    )
    return run_command(request, settings, state.output)
