"""The key-value cache and its buckets: batches, blocks, prefixes, chunks, padding.

From NxDI 0.9.0: modules/kvcache/*, modules/autobucketing.py, modules/attention/attention_base.py,
models/config.py, models/model_base.py.
"""

from __future__ import annotations

from math import ceil, log2

from neuroncompile.config.rule import Case, Rule

__all__ = ["RULES"]


def batches(case: Case) -> list[str]:
    """A decode step writes one row of the cache for each of its own."""
    rows = case.get("kv_cache_batch_size")
    if case.on("attention_dp_degree"):
        return []  # NxDI derives the rows then
    for field in ("tkg_batch_size", "spec_batch_size"):
        value = case.get(field)
        if field == "spec_batch_size" and not (
            case.on("speculation_length") or case.on("is_medusa")
        ):
            continue
        if value > rows:
            raise case.refusal(
                field,
                f"the cache has {rows} rows, {case.said('kv_cache_batch_size')}",
                f"1 to {rows}",
                f"lower {field}, or raise kv_cache_batch_size",
            )
        if field == "spec_batch_size":
            continue  # its rows go by seq_id anyway
        if value < rows and not case.on("is_continuous_batching"):
            culprit = field if case.given(field) else "kv_cache_batch_size"
            raise case.refusal(
                culprit,
                f"without is_continuous_batching a step of {field} {value} cannot tell which rows "
                f"of the cache, {case.said('kv_cache_batch_size')}, it means",
                rows if culprit == field else value,
                f"set {culprit} to {rows if culprit == field else value}, or "
                "is_continuous_batching=true",
            )
    return []


def continuous_batch_rows(case: Case) -> list[str]:
    """NxDI places a prompt by its seq_id, and asserts that it is one prompt; blocks need none."""
    if case.on("is_block_kv_layout"):
        return []
    if case.on("is_continuous_batching") and case.get("ctx_batch_size") > 1:
        raise case.refusal(
            "ctx_batch_size",
            "continuous batching encodes one prompt at a time",
            1,
            "set ctx_batch_size to 1, or is_continuous_batching to false",
        )
    return []


def block_counts(case: Case) -> list[str]:
    """The blocks hold at least one sequence of full length."""
    if not case.on("is_block_kv_layout"):
        return []
    size, count = case.get("pa_block_size"), case.get("pa_num_blocks")
    length = case.get("max_length")
    if length % size:
        raise case.refusal(
            "pa_block_size",
            f"it does not divide the length, {case.said(case.length)}",
            f"a divisor of {length}",
            f"set seq_len to {ceil(length / size) * size}, or another pa_block_size",
        )
    per_sequence = length // size
    if count < per_sequence:
        raise case.refusal(
            "pa_num_blocks",
            f"one sequence of {case.said(case.length)} needs {per_sequence} blocks of "
            f"pa_block_size {size}",
            f">= {per_sequence}",
            f"set pa_num_blocks to {per_sequence * case.get('batch_size')} for a batch of "
            f"{case.get('batch_size')}",
        )
    whole = count // per_sequence
    if whole < case.get("batch_size"):
        return [
            f"pa_num_blocks {count} holds {whole} sequences of full length, batch_size is "
            f"{case.get('batch_size')}: the scheduler will have to wait or preempt"
        ]
    return []


def prefix_blocks(case: Case) -> list[str]:
    """Without the block kernel NxDI tiles each block, by a power of two."""
    if not case.on("is_prefix_caching") or case.on("attn_block_tkg_nki_kernel_enabled"):
        return []
    size = case.get("pa_block_size")
    blocks = ceil(case.get("max_length") / size)
    if blocks >= 128:
        return []
    tiles = 1 << ceil(log2(128 / blocks))
    if size % tiles:
        raise case.refusal(
            "pa_block_size",
            f"with {blocks} blocks a sequence ({case.said(case.length)}) NxD Inference splits each "
            f"into {tiles} tiles, and attn_block_tkg_nki_kernel_enabled is off",
            f"multiples of {tiles}",
            f"use a multiple of {tiles}, for example 32 with a longer seq_len, or set "
            "attn_block_tkg_nki_kernel_enabled",
        )
    return []


def chunked_prefill(case: Case) -> list[str]:
    """Its code is there, and from 0.8 on its door is shut (models/model_base.py)."""
    if not case.on("chunked_prefill_config"):
        return []
    if case.nxdi is None or case.nxdi >= (0, 8):
        raise case.refusal(
            "chunked_prefill_config",
            "NxD Inference 0.8 and later do not run chunked prefill (NotImplementedError)",
            "unset",
            "leave chunked_prefill_config out, or use SDK 2.27 or older",
        )
    if not case.get("chunked_prefill_config.tkg_model_enabled") and case.get("batch_size") != 1:
        raise case.refusal(
            "batch_size",
            "chunked prefill without a token-generation graph concatenates all requests into one",
            1,
            "set batch_size to 1, or chunked_prefill_config.tkg_model_enabled=true",
        )
    if case.get("chunked_prefill_config.max_num_seqs") < 1:
        raise case.refusal(
            "chunked_prefill_config.max_num_seqs",
            "it is the number of requests in one chunk",
            ">= 1",
            "set chunked_prefill_config.max_num_seqs",
        )
    return []


def bucket_shape(case: Case) -> list[str]:
    """Pairs of (chunk, tiles) for chunked prefill, plain lengths for everything else."""
    listed = case.config.get("context_encoding_buckets")
    if not listed or not case.given("context_encoding_buckets"):
        return []
    pairs = isinstance(listed[0], list | tuple)
    if pairs != case.on("chunked_prefill_config"):
        raise case.refusal(
            "context_encoding_buckets",
            "chunked prefill takes pairs of chunk length and tiles"
            if not pairs
            else "pairs are for chunked prefill",
            "[[length, tiles], …]" if not pairs else "[length, …]",
            "give pairs, or leave context_encoding_buckets out" if not pairs else "give lengths",
        )
    if case.on("is_prefix_caching") and not case.config.get("prefix_buckets"):
        raise case.refusal(
            "context_encoding_buckets",
            "with is_prefix_caching each length is paired with prefix_buckets, and there are none",
            "unset, or with prefix_buckets",
            "set prefix_buckets too, or leave both out to derive them",
        )
    return []


def prefix_buckets(case: Case) -> list[str]:
    """Read beside explicit context-encoding buckets only; 0, no prefix, is always added."""
    listed = case.config.get("prefix_buckets")
    if not listed or not case.on("is_prefix_caching"):
        return []
    if not case.given("context_encoding_buckets"):
        raise case.refusal(
            "prefix_buckets",
            "NxD Inference reads it beside context_encoding_buckets only",
            "unset, or with context_encoding_buckets",
            "set context_encoding_buckets too, or leave prefix_buckets out",
        )
    if len(set(listed)) != len(listed) or max(listed) > case.get("max_context_length"):
        raise case.refusal(
            "prefix_buckets",
            f"each stands once and is at most {case.said('max_context_length')}",
            f"1 to {case.get('max_context_length')}, each once",
            "leave out the second, or the longer ones",
        )
    return []


def padding(case: Case) -> list[str]:
    """Left padding is a leftover: flash attention ignores the mask it needs."""
    if case.get("padding_side") != "left":
        return []
    for name in ("k_cache_transposed", "is_block_kv_layout", "is_prefix_caching"):
        if case.on(name):
            raise case.refusal(
                "padding_side",
                f"{name} has no left padding",
                "right",
                "set padding_side to right",
            )
    if case.get("ctx_batch_size") > 1 and case.get("attn_kernel_enabled") is not False:
        raise case.refusal(
            "padding_side",
            "the attention kernel ignores the mask, so only one row may be padded on the left",
            "right, or with ctx_batch_size 1 or attn_kernel_enabled=false",
            "set padding_side to right",
        )
    return ["padding_side is left; the runtime pads prompts on the right, as NxD Inference does"]


def transposed_keys(case: Case) -> list[str]:
    """Not written for a step with fewer rows than the cache."""
    if case.on("k_cache_transposed") and case.get("batch_size") < case.get("kv_cache_batch_size"):
        raise case.refusal(
            "k_cache_transposed",
            f"batch_size {case.get('batch_size')} is below kv_cache_batch_size "
            f"{case.get('kv_cache_batch_size')}",
            False,
            "leave k_cache_transposed out, or kv_cache_batch_size",
        )
    return []


def window(case: Case) -> list[str]:
    """Windowed context encoding of a model with a sliding window uses that window."""
    size, own = case.get("windowed_context_encoding_size"), case.model.get("sliding_window")
    if size is not None and isinstance(own, int) and own > 0 and size != own:
        raise case.refusal(
            "windowed_context_encoding_size",
            f"the model's sliding window is {own}",
            own,
            f"set windowed_context_encoding_size to {own}",
        )
    return []


RULES: tuple[Rule, ...] = (
    batches,
    continuous_batch_rows,
    block_counts,
    prefix_blocks,
    chunked_prefill,
    bucket_shape,
    prefix_buckets,
    padding,
    transposed_keys,
    window,
)
