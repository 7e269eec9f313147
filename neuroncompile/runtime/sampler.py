"""The next token of each row of a batch.

What a batch needs is decided once, when it is composed: all greedy is one argmax and no draw;
a row without filters is drawn from its whole vocabulary; only top-k and top-p rows look for
their likeliest tokens. Greedy rows of a mixed batch stay greedy.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from neuroncompile.errors import RunError
from neuroncompile.runtime.philox import uniform
from neuroncompile.runtime.sampling import TOP_K_LIMIT, SamplingParams

__all__ = ["Sampler"]

_BLOCK = 512
_COLDEST = float(np.finfo(np.float32).tiny)  # below it 1/temperature is infinite in float32


class Sampler:
    """Samples one composition of a batch; a row's token never depends on its neighbours.

    Args:
        params: one per row.
    """

    def __init__(self, params: Sequence[SamplingParams]) -> None:
        self.params = tuple(params)
        self.greedy = all(p.greedy for p in self.params)

    def sample(self, logits: NDArray[np.float32], positions: Sequence[int]) -> list[int]:
        """Choose each row's token.

        Args:
            logits: float32 [B, vocab], rows as the parameters were given.
            positions: position the chosen token will have in its sequence, one per row.

        Returns:
            Token ids; equal logits go to the lower id.

        Raises:
            RunError: a row holds NaN or +inf.
        """
        tokens = logits.argmax(axis=-1).tolist()  # argmax of a row with NaN is the NaN
        for row, token in enumerate(tokens):
            if not math.isfinite(logits[row, token]):
                raise RunError(
                    f"the program computes logits that are not finite (row {row})",
                    hint="the weights may be damaged or overflow in this dtype; "
                    "try --dtype float32",
                )
        if self.greedy:
            return tokens  # type: ignore[no-any-return]
        return [
            token if p.greedy else _draw(row, float(row[token]), p, position)
            for row, token, p, position in zip(logits, tokens, self.params, positions, strict=True)
        ]


def _draw(row: NDArray[np.float32], top: float, params: SamplingParams, position: int) -> int:
    u = uniform(params.seed, position)
    temperature = max(params.temperature, _COLDEST)
    if params.top_k == 0 and params.top_p == 1:
        return by_blocks(_weights(row, top, temperature), u)
    ids = likeliest(row, params.top_k or TOP_K_LIMIT)
    kept = np.exp((row[ids].astype(np.float64) - top) / temperature)
    if params.top_p < 1:
        if params.top_k:
            total = float(kept.sum())
        else:
            total = float(_weights(row, top, temperature).sum(dtype=np.float64))
        before = np.cumsum(kept) - kept
        kept = kept[before < params.top_p * total]  # the token that crosses p stays
    return int(ids[_inverse(kept, u * float(kept.sum()))])


def _weights(row: NDArray[np.float32], top: float, temperature: float) -> NDArray[np.float32]:
    """Probabilities times a constant: the likeliest token has 1."""
    with np.errstate(over="ignore"):  # far below the top and nearly frozen: −inf, weight 0
        weights: NDArray[np.float32] = np.exp((row - np.float32(top)) / np.float32(temperature))
    return weights


def likeliest(row: NDArray[np.float32], count: int) -> NDArray[np.int64]:
    """Ids of the `count` (≤ 512) largest values, largest first, the lower id first among equals.

    The count-th largest of 512 disjoint groups' maxima is a floor for the count-th largest value,
    so only the few values above it are sorted: at 128,256 entries six times faster than
    argpartition, and without its arbitrary choice among equals.
    """
    ids: NDArray[np.int64]
    whole = row.size // _BLOCK * _BLOCK
    if whole == 0:
        ids = np.arange(row.size)
    else:
        maxima = row[:whole].reshape(-1, _BLOCK).max(axis=0)
        at = _BLOCK - min(count, _BLOCK)
        ids = np.flatnonzero(row >= np.partition(maxima, at)[at])
    return ids[np.argsort(-row[ids], kind="stable")[:count]]


def by_blocks(weights: NDArray[np.float32], u: float) -> int:
    """Index of the interval of the running sum that holds `u` of the whole; 0 ≤ u < 1."""
    starts = np.arange(0, weights.size, _BLOCK)
    sums = np.add.reduceat(weights, starts, dtype=np.float64)
    point = u * float(sums.sum())
    block = _inverse(sums, point)
    point -= float(sums[:block].sum())
    within = weights[starts[block] : starts[block] + _BLOCK].astype(np.float64)
    return int(starts[block]) + _inverse(within, point)


def _inverse(weights: NDArray[np.float64], point: float) -> int:
    """Index of the interval of the running sum that holds `point`.

    Never one of weight 0, which rounding at the very end of the sum could otherwise reach.
    """
    running = np.cumsum(weights)
    index = int(np.searchsorted(running, point, side="right"))
    if index >= weights.size:
        index = int(np.flatnonzero(weights)[-1])
    return index
