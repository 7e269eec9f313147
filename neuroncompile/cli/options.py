"""The options that shape a program, shared by `build` and `run`.

Each maps to NxDI's keyword; aliases are the names vLLM, optimum-neuron and NxDI's demo use.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from neuroncompile.pipeline.request import BuildRequest

__all__ = [
    "Adapter",
    "AllowHeadPadding",
    "AllowUnknown",
    "BatchSize",
    "ContextBuckets",
    "DraftModel",
    "Dtype",
    "EnableBucketing",
    "Jobs",
    "Lnc",
    "MaxContextLength",
    "MaxModelLen",
    "MaxNumSeqs",
    "Model",
    "ModelClass",
    "OptLevel",
    "Overrides",
    "RequireCached",
    "RetryFailed",
    "Revision",
    "SeqLen",
    "Set",
    "SpeculativeTokens",
    "Target",
    "TensorParallel",
    "Tier",
    "TokenBuckets",
    "ToolchainName",
    "Vllm",
    "build_request",
    "program_flags",
]

PROGRAM = "Program"

Model = Annotated[
    str,
    typer.Argument(
        metavar="MODEL",
        help="A directory or .gguf file (./…), pypi:NAME==VERSION#MEMBER, a recipe, or "
        "org/name[@revision] of the Hugging Face Hub.",
    ),
]
Target = Annotated[
    str,
    typer.Option(
        "--target",
        "--instance-type",
        metavar="TARGET",
        help="cpu[:isa], trn1, trn1n, inf2, trn2, trn3 or an instance  [default: recipe, else cpu]",
    ),
]
Dtype = Annotated[
    str, typer.Option("--dtype", "--torch-dtype", help="Weights: float32, bfloat16, float16, auto.")
]
BatchSize = Annotated[int | None, typer.Option("--batch-size", help="Sequences decoded at once.")]
SeqLen = Annotated[
    int | None,
    typer.Option(
        "--seq-len",
        "--sequence-length",
        help="Prompt and new tokens together  [default: min(model's positions, 4096)]",
    ),
]
MaxContextLength = Annotated[
    int | None, typer.Option("--max-context-length", help="Longest prompt  [default: seq-len]")
]
ContextBuckets = Annotated[
    str,
    typer.Option(
        "--context-encoding-buckets", metavar="N,N,…", help="Prompt lengths to compile for."
    ),
]
TokenBuckets = Annotated[
    str,
    typer.Option(
        "--token-generation-buckets", metavar="N,N,…", help="Cache lengths to compile for."
    ),
]
EnableBucketing = Annotated[
    bool | None,
    typer.Option("--enable-bucketing/--no-enable-bucketing", help="Several lengths, or one."),
]
TensorParallel = Annotated[
    int | None,
    typer.Option(
        "--tensor-parallel-size", "--tp", "--tp-degree", help="Cores a layer is split over."
    ),
]
Lnc = Annotated[
    int | None,
    typer.Option(
        "--logical-nc-config", "--lnc", help="Physical cores in a logical one (trn2, trn3)."
    ),
]
OptLevel = Annotated[
    str,
    typer.Option(
        "-O",
        "--optlevel",
        metavar="LEVEL",
        help="cpu: 1 compiles one layer and reuses it, 2 the whole model at once; "
        "Neuron: the compiler's own levels.",
    ),
]
Set = Annotated[
    list[str] | None,
    typer.Option(
        "--set", metavar="KEY=VALUE", help="Any NxDI keyword, nested with dots; repeatable."
    ),
]
Overrides = Annotated[
    list[str] | None,
    typer.Option(
        "--override-neuron-config",
        metavar="JSON|@FILE",
        help="NxDI keywords as a JSON object, merged deeply; repeatable.",
    ),
]
Vllm = Annotated[
    bool,
    typer.Option(
        "--vllm", help="Start from vLLM's defaults: 32 sequences of the model's whole length."
    ),
]
MaxNumSeqs = Annotated[
    int | None,
    typer.Option("--max-num-seqs", help="vLLM's name of --batch-size (implies --vllm)."),
]
MaxModelLen = Annotated[
    int | None,
    typer.Option("--max-model-len", help="vLLM's name of --seq-len (implies --vllm)."),
]
SpeculativeTokens = Annotated[
    int | None,
    typer.Option(
        "--num-speculative-tokens",
        metavar="N",
        min=1,
        help="Start from vLLM's defaults for speculation (implies --vllm).",
    ),
]
AllowUnknown = Annotated[
    bool, typer.Option("--allow-unknown", help="Pass keywords this version does not know; hashed.")
]
AllowHeadPadding = Annotated[
    bool,
    typer.Option("--allow-head-padding", help="Pad attention heads with zeros to divide by tp."),
]
Revision = Annotated[str, typer.Option("--revision", help="Branch, tag or commit of a hub model.")]
ToolchainName = Annotated[
    str, typer.Option("--toolchain", metavar="NAME|FILE", help="Frozen toolchain to compile with.")
]
ModelClass = Annotated[
    str,
    typer.Option(
        "--model-class",
        metavar="SOURCE:CLASS",
        help="Your own NxDI class: ./file.py:Class or module:Class (Neuron targets).",
    ),
]
DraftModel = Annotated[
    str,
    typer.Option(
        "--draft-model",
        "--draft-model-path",
        metavar="REF[@REV]",
        help="Draft for speculation in the same program, or 'self' (Neuron targets).",
    ),
]
Adapter = Annotated[
    list[str] | None,
    typer.Option(
        "--adapter",
        metavar="NAME=REF",
        help="LoRA adapter to make room for; repeatable (Neuron targets).",
    ),
]
Locked = Annotated[
    bool,
    typer.Option("--locked", help="Refuse what leads to another key than neuroncompile.lock has."),
]
Jobs = Annotated[
    int | None, typer.Option("--jobs", "-j", help="Compilers at once  [default: one per core]")
]
RetryFailed = Annotated[
    bool, typer.Option("--retry-failed", help="Compile again what was rejected within a day.")
]
RequireCached = Annotated[
    bool,
    typer.Option(
        "--require-cached", help="Never compile; exit 3 when neither store nor tier has it."
    ),
]

Tier = Annotated[
    list[str] | None,
    typer.Option(
        "--tier",
        metavar="URL",
        help="Also look in s3://BUCKET/PREFIX or file:///PATH; repeatable, nearest first.",
    ),
]


def build_request(params: Mapping[str, Any]) -> BuildRequest:
    """The request that a command's parameters make, by the names they have in this module."""
    from neuroncompile.pipeline.request import BuildRequest

    flags = (
        "dtype",
        "batch_size",
        "seq_len",
        "max_context_length",
        "context_encoding_buckets",
        "token_generation_buckets",
        "enable_bucketing",
        "tensor_parallel_size",
        "logical_nc_config",
        "max_num_seqs",
        "max_model_len",
    )
    speculative = params["num_speculative_tokens"]
    named = [params["max_num_seqs"], params["max_model_len"], speculative]
    return BuildRequest(
        model=params["model"],
        target=params["target"] or None,
        flags=program_flags(**{name: params[name] for name in flags}),
        sets=tuple(params["sets"] or ()),
        overrides=tuple(params["overrides"] or ()),
        vllm=params["vllm"] or any(value is not None for value in named),
        num_speculative_tokens=speculative,
        optlevel=params["optlevel"] or None,
        allow_unknown=params["allow_unknown"],
        allow_head_padding=params["allow_head_padding"],
        revision=params["revision"] or None,
        toolchain=params["toolchain"] or None,
        model_class=params["model_class"] or None,
        draft=params["draft_model"] or None,
        adapters=tuple(params["adapter"] or ()),
        fallback=params.get("fallback", False),
        locked=params.get("locked", False),
    )


def program_flags(
    *,
    dtype: str = "",
    batch_size: int | None = None,
    seq_len: int | None = None,
    max_context_length: int | None = None,
    context_encoding_buckets: str = "",
    token_generation_buckets: str = "",
    enable_bucketing: bool | None = None,
    tensor_parallel_size: int | None = None,
    logical_nc_config: int | None = None,
    max_num_seqs: int | None = None,
    max_model_len: int | None = None,
) -> Mapping[str, tuple[str, Any]]:
    """NxDI keyword → (flag as typed by a user, value), for the flags that were given.

    Raises:
        UsageError: two names of one keyword with different values.
    """
    given = {
        "torch_dtype": ("--dtype", dtype or None),
        "batch_size": _one_of(("--batch-size", batch_size), ("--max-num-seqs", max_num_seqs)),
        "seq_len": _one_of(("--seq-len", seq_len), ("--max-model-len", max_model_len)),
        "max_context_length": ("--max-context-length", max_context_length),
        "context_encoding_buckets": (
            "--context-encoding-buckets",
            context_encoding_buckets or None,
        ),
        "token_generation_buckets": (
            "--token-generation-buckets",
            token_generation_buckets or None,
        ),
        "enable_bucketing": ("--enable-bucketing", enable_bucketing),
        "tp_degree": ("--tensor-parallel-size", tensor_parallel_size),
        "logical_nc_config": ("--logical-nc-config", logical_nc_config),
    }
    return {name: pair for name, pair in given.items() if pair[1] is not None}


def _one_of(ours: tuple[str, Any], theirs: tuple[str, Any]) -> tuple[str, Any]:
    """The flag that was given, of two names for one keyword."""
    if ours[1] is None or theirs[1] is None or ours[1] == theirs[1]:
        return ours if theirs[1] is None else theirs
    from neuroncompile.errors import UsageError

    raise UsageError(
        f"{ours[0]} {ours[1]} and {theirs[0]} {theirs[1]} are two names for one value",
        hint=f"leave {ours[0]} or {theirs[0]} out",
    )
