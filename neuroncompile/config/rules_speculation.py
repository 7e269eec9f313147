"""Speculation: fused, with EAGLE, Medusa or a plain draft, against everything else.

From NxDI 0.9.0: models/model_base.py (`NeuronFusedSpecModel`, `enable_speculation`),
modules/eagle/token_tree.py, modules/attention/attention_base.py, modules/async_execution.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from neuroncompile.config.rule import Case, Rule
from neuroncompile.errors import ConfigError

__all__ = ["RULES"]


def length(case: Case) -> list[str]:
    """One speculated token would only be the token itself."""
    value = case.get("speculation_length")
    if value == 1:
        raise case.refusal(
            "speculation_length",
            "a step verifies that many positions, and one is plain decoding",
            "0, or 2 and more",
            "set speculation_length to 2 or more, or leave it out",
        )
    if value >= case.get("max_length"):
        raise case.refusal(
            "speculation_length",
            f"a step would fill the whole length, {case.said(case.length)}",
            f"below {case.get('max_length')}",
            "lower speculation_length or raise seq_len",
        )
    return []


def untested(case: Case) -> list[str]:
    """Combinations that compile and were reported to fail later, on one target or another."""
    kind = next(
        (
            name
            for name in ("enable_fused_speculation", "is_medusa", "speculation_length")
            if case.on(name)
        ),
        None,
    )
    if kind is None:
        return []
    beside = [
        (case.get("batch_size") > 1, f"batch_size {case.get('batch_size')}"),
        (case.target.platform in ("trn1", "trn1n", "inf2"), f"target {case.target.platform}"),
        (case.on("sequence_parallel_enabled"), "sequence_parallel_enabled"),
        (case.on("lora_config"), "lora_config"),
    ]
    return [
        f"{kind} together with {what} is untested: it compiles, and has been reported to fail on "
        "the device"
        for holds, what in beside
        if holds
    ]


def sliding_window(case: Case) -> list[str]:
    """Only one kernel verifies several positions inside a window."""
    if not case.model.get("sliding_window") or not case.on("enable_fused_speculation"):
        return []
    kernel = "attn_block_tkg_nki_kernel_cascaded_attention"
    if case.on(kernel):
        return []
    raise case.refusal(
        "enable_fused_speculation",
        f"this model has a sliding window of {case.model['sliding_window']}, and NxD Inference "
        f"speculates inside one with {kernel} only",
        f"false, or with {kernel}",
        f"set attn_block_tkg_nki_kernel_enabled and {kernel}",
    )


def asynchronous(case: Case) -> list[str]:
    """Prefix caching and asynchronous steps meet in EAGLE only."""
    if not (case.on("async_mode") and case.on("speculation_length")):
        return []
    if not case.on("enable_fused_speculation"):
        return ["async_mode gains nothing with unfused speculation: the host waits for each step"]
    if case.on("is_prefix_caching") and not case.on("enable_eagle_speculation"):
        raise case.refusal(
            "async_mode",
            "with is_prefix_caching and enable_fused_speculation it needs EAGLE",
            False,
            "leave async_mode out, or set enable_eagle_speculation",
        )
    return []


def medusa_tree(case: Case) -> list[str]:
    """Paths of the tree are no deeper than there are heads, and fit one step."""
    tree = case.get("medusa_tree")
    if not case.on("is_medusa") or not tree:
        return []
    for path in tree:
        if not (
            isinstance(path, list)
            and path
            and all(type(node) is int and node >= 0 for node in path)
        ):
            raise case.refusal(
                "medusa_tree",
                f"{path!r} is no path",
                "a list of lists of whole numbers, for example [[0], [0, 0], [1]]",
                "give each node as its path from the root",
            )
    depth, heads = max(map(len, tree)), case.get("num_medusa_heads")
    if depth > heads:
        raise case.refusal(
            "medusa_tree",
            f"its depth, {depth}, exceeds num_medusa_heads, {heads}",
            f"paths of at most {heads} nodes",
            f"set num_medusa_heads to {depth}, or shorten the paths",
        )
    wanted = len(tree) + 1
    if case.get("medusa_speculation_length") != wanted:
        raise case.refusal(
            "medusa_speculation_length",
            f"medusa_tree has {len(tree)} nodes, and a step verifies them and the root",
            wanted,
            f"set medusa_speculation_length to {wanted}",
        )
    return []


def token_tree(case: Case) -> list[str]:
    """A tree of node → children, from node 0, each reached once."""
    tree = case.get("token_tree_config")
    if not tree:
        return []

    def wrong(because: str) -> ConfigError:
        return case.refusal(
            "token_tree_config",
            because,
            'node → list of children, for example {"0": [1, 2], "1": [3]}',
            "number the nodes from 0, the root, and name each child once",
        )

    try:
        children = {int(node): [int(child) for child in below] for node, below in tree.items()}
    except (TypeError, ValueError):
        raise wrong("a node or a child is no whole number") from None
    if 0 not in children:
        raise wrong("it has no root, node 0")
    seen, queue = {0}, [0]
    for node in queue:
        for child in children.get(node, ()):
            if child in seen:
                raise wrong(f"node {child} is reached twice")
            seen.add(child)
            queue.append(child)
    unreached = sorted(set(children) - seen)
    if unreached:
        raise wrong(f"node {unreached[0]} is not reached from the root")
    return []


def draft(case: Case) -> list[str]:
    """The draft's own neuron config is held to the same table of keywords."""
    inner: Any = case.get("fused_spec_config.draft_config")
    inner = inner.get("neuron_config") if isinstance(inner, Mapping) else None
    if not isinstance(inner, Mapping):
        return []
    from neuroncompile.config.legal import check_table

    path = "fused_spec_config.draft_config.neuron_config"
    check_table(inner, path=path, origin=case.origin("fused_spec_config"))
    for name in ("enable_fused_speculation", "enable_eagle_speculation"):
        if inner.get(name):
            raise ConfigError(
                f"{path}.{name} is {inner[name]!r}; the draft speculates no further",
                field=f"{path}.{name}",
                value=inner[name],
                legal=False,
                hint=f"leave {name} out of the draft's neuron config",
            )
    return []


RULES: tuple[Rule, ...] = (
    length,
    untested,
    sliding_window,
    asynchronous,
    medusa_tree,
    token_tree,
    draft,
)
