"""Specs: everything that can change an output, and its SHA-256 as the name of that output.

    {"schema":1,"kind","backend","model":{…},"neuron":{…},"compiler":{"args":[],"env":{}},
     "optlevel","target":{…},"toolchain":{…}}

and `"draft":{"model":{…},"neuron":{…}}` where a draft is in the same program. A spec is the
config blob of its OCI manifest, so anyone can check name → spec → bytes.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from neuroncompile.errors import ConfigError
from neuroncompile.keys.canonical import canonical, canonical_bytes, digest_of
from neuroncompile.keys.exclusions import (
    MODEL_EXCLUSIONS,
    NEURON_EXCLUSIONS,
    SHARD_EXCLUSIONS,
    without,
)

__all__ = [
    "SCHEMA",
    "compile_spec",
    "compiler_flags",
    "graph_spec",
    "pack_spec",
    "shard_spec",
    "spec_key",
]

SCHEMA = 1

_WRAPPER_OPTIONS = (
    "--cache_dir",
    "--log_level",
    "--no_cache",
    "--retry_failed_compilation",
    "--verbose",  # neuronx-cc's own: how much it prints
)
_SYNONYMS = {"--optlevel": "-O", "--logical-nc-config": "--lnc", "-lnc": "--lnc"}  # one setting


def compile_spec(
    *,
    backend: str,
    model: Mapping[str, Any],
    neuron: Mapping[str, Any],
    compiler: Mapping[str, Any],
    optlevel: str | None,
    target: Mapping[str, Any],
    toolchain: Mapping[str, Any],
    fused_speculation: bool = False,
    draft: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """The spec of one program.

    Args:
        model: normalised Hugging Face config (`models.architecture.normalise`).
        neuron: effective NxDI keywords, defaults resolved.
        compiler: `{"args": […], "env": {…}}`.
        target: the compiler's target, e.g. `{"platform": "trn2", "lnc": 2}`.
        toolchain: package → version.
        fused_speculation: `pad_token_id` is then a constant of the graph.
        draft: `{"model": …, "neuron": …}` of a draft in the same program, as the target's; its
            weights and revision are not in it.
    """
    more = {}
    if draft is not None:
        more["draft"] = {
            "model": without(draft["model"], MODEL_EXCLUSIONS, fused_speculation=fused_speculation),
            "neuron": without(draft["neuron"], NEURON_EXCLUSIONS, nested=True),
        }
    return _spec(
        kind="compile",
        backend=backend,
        model=without(model, MODEL_EXCLUSIONS, fused_speculation=fused_speculation),
        neuron=without(neuron, NEURON_EXCLUSIONS, nested=True),
        compiler=compiler,
        optlevel=optlevel,
        target=target,
        toolchain=toolchain,
        **more,
    )


def graph_spec(
    *,
    submodel: str,
    region: str,
    batch: int,
    bucket: int,
    cache_length: int,
    model: Mapping[str, Any],
    dtype: str,
    target: Mapping[str, Any],
    toolchain: Mapping[str, Any],
    optlevel: str | None,
    **more: Any,
) -> dict[str, Any]:
    """The spec of one cpu graph: only what this region of this submodel reads.

    Args:
        submodel: "context_encoding_model" or "token_generation_model".
        region: "layer", "edge" or "whole".
        batch: rows of the graph.
        bucket: tokens (context encoding) or attended cache length (token generation).
        cache_length: length of a cache slot.
        model: the fields the region reads; never bucket lists, layer count or index.
        dtype: of the weights.
        more: further shape facts of the region (e.g. cache slots).
    """
    return _spec(
        kind="graph",
        backend="cpu",
        submodel=submodel,
        region=region,
        batch=batch,
        bucket=bucket,
        cache_length=cache_length,
        model=model,
        dtype=dtype,
        target=target,
        toolchain=toolchain,
        optlevel=optlevel,
        **more,
    )


def pack_spec(
    *,
    sources: Mapping[str, str],
    layout: str,
    dtype: str,
    quantization: str | None,
    toolchain: Mapping[str, Any],
) -> dict[str, Any]:
    """The spec of derived weights.

    Args:
        sources: file name → SHA-256. The names are for people; only digests enter, sorted.
        layout: version of names, order and format of the result.
        dtype: of the result.
        quantization: scheme, or None.
        toolchain: versions that change the result's bytes.
    """
    return _spec(
        kind="pack",
        sources=_digests(sources),
        layout=layout,
        dtype=dtype,
        quantization=quantization,
        toolchain=toolchain,
    )


def shard_spec(
    *,
    sources: Mapping[str, str],
    model: Mapping[str, Any],
    neuron: Mapping[str, Any],
    target: Mapping[str, Any],
    toolchain: Mapping[str, Any],
    draft: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """The spec of weights cut into ranks, which no other program's layout is in.

    Args:
        sources: file name → SHA-256 of the checkpoint, or of what it was quantised to.
        model: the compile spec's `model`.
        neuron: effective NxDI keywords; those in `SHARD_EXCLUSIONS` do not enter.
        toolchain: package → version; only those that cut take part.
        draft: `{"sources", "model", "neuron"}` of a draft in the same program.
    """
    more: dict[str, Any] = {}
    if draft is not None:
        more["draft"] = {
            "sources": _digests(draft["sources"]),
            "model": draft["model"],
            "neuron": _cut(draft["neuron"]),
        }
    return _spec(
        kind="shard",
        backend="nxdi",
        sources=_digests(sources),
        model=model,
        neuron=_cut(neuron),
        target=target,
        toolchain={name: toolchain[name] for name in _CUTTING if name in toolchain},
        **more,
    )


_CUTTING = (
    "neuronx-distributed-inference",
    "neuronx-distributed",
    "torch",
    "transformers",
)


def _cut(neuron: Mapping[str, Any]) -> dict[str, Any]:
    return without(neuron, {**NEURON_EXCLUSIONS, **SHARD_EXCLUSIONS}, nested=True)


def _digests(sources: Mapping[str, str]) -> list[str]:
    return sorted(digest.removeprefix("sha256:") for digest in sources.values())


def spec_key(spec: Mapping[str, Any]) -> str:
    """SHA-256 of the spec's canonical bytes, 64 hex digits."""
    return digest_of(canonical_bytes(spec))


def compiler_flags(text: str | Sequence[str]) -> list[str]:
    """NEURON_CC_FLAGS as a key sees them.

    Spacing and the order of different options do not matter (of one option given twice the
    later wins, so that order is kept); options of the caching wrapper (`--cache_dir`,
    `--log_level`, `--no_cache`, `--retry_failed_compilation`) do not reach the compiler, and
    `--verbose` says only how much it prints.
    `--option value` and `--option=value` are one spelling, and so are `-O1` and `--optlevel 1`.

    Raises:
        ConfigError: a quotation that does not end.
    """
    try:
        words = shlex.split(text) if isinstance(text, str) else list(text)
    except ValueError as error:
        raise ConfigError(
            f"compiler flags {text!r} cannot be read: {error}",
            field="NEURON_CC_FLAGS",
            value=text,
            legal="words as a shell splits them",
            hint="close the quotation",
        ) from None
    options: list[list[str]] = []
    for word in words:
        if _is_option(word) or not options:
            options.append(word.split("=", 1))
        else:  # stays with its option, or two options could exchange their values in the sort
            options[-1].append(word)
    kept = [_spelt(option) for option in options if option[0] not in _WRAPPER_OPTIONS]
    return [word for _, words in sorted(kept, key=lambda pair: pair[0]) for word in words]


def _is_option(word: str) -> bool:
    """As argparse decides: a negative number or a text with blanks is a value."""
    return word[:1] == "-" and " " not in word.split("=", 1)[0] and not word[1:2].isdigit()


def _spelt(option: list[str]) -> tuple[str, list[str]]:
    """What an option sets, and its words: `--lnc 2` → `--lnc`, [`--lnc=2`]; `-O 2` → [`-O2`]."""
    name, *values = option
    name = _SYNONYMS.get(name, name)
    joint = "" if len(name) == 2 else "="
    setting = name if name.startswith("--") else name[:2]
    return setting, [joint.join([name, *values[:1]]), *values[1:]]


def _spec(**sections: Any) -> dict[str, Any]:
    spec: dict[str, Any] = canonical({"schema": SCHEMA, **sections})
    return spec
