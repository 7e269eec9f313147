"""Buckets as NxDI derives them (NxDI 0.9.0, modules/autobucketing.py).

A bucket is a sequence length that a graph is compiled for: prompts are padded to the smallest
context-encoding bucket that holds them, and a decode step reads the smallest token-generation
bucket of the cache that holds its position. Left alone, they are the powers of two from 128
up, then the length itself; a power that would lie close below the length is left out, because
the exponent is rounded, not cut.
"""

from __future__ import annotations

from math import log2

__all__ = ["SMALLEST", "context_encoding", "derive", "token_generation"]

SMALLEST = 128
"""Where the powers of two begin."""


def context_encoding(max_context_length: int, *, enable_bucketing: bool = True) -> list[int]:
    """Prompt lengths to compile for, in tokens, ascending."""
    return derive(max_context_length) if enable_bucketing else [max_context_length]


def token_generation(max_length: int, *, enable_bucketing: bool = True) -> list[int]:
    """Cache lengths to compile decode steps for, in tokens, ascending."""
    return derive(max_length) if enable_bucketing else [max_length]


def derive(length: int) -> list[int]:
    """Powers of two from `SMALLEST` below `length`, then `length`; all below it when short."""
    if length == SMALLEST:
        return [length]
    exponents = range(SMALLEST.bit_length() - 1, round(log2(length)))
    return [*(1 << exponent for exponent in exponents), length]
