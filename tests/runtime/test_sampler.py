"""The distribution of the draw, and that it is a row's own business."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from neuroncompile.errors import RunError
from neuroncompile.runtime.sampler import Sampler, by_blocks, likeliest
from neuroncompile.runtime.sampling import SamplingParams


def draw(
    logits: NDArray[np.float32], params: Sequence[SamplingParams], positions: Sequence[int]
) -> list[int]:
    return Sampler(params).sample(logits, positions)


LOGITS = np.log(np.array([[0.5, 0.25, 0.125, 0.075, 0.05]], dtype=np.float32))


def frequencies(params: dict[str, Any], count: int = 2000) -> list[float]:
    hits = np.zeros(5)
    for seed in range(count):
        [token] = draw(LOGITS, [SamplingParams(**params, seed=seed)], [3])
        hits[token] += 1
    return [round(float(h), 3) for h in hits / count]


@pytest.mark.parametrize(
    ("params", "expected"),
    [
        ({"temperature": 1.0}, [0.5, 0.25, 0.125, 0.075, 0.05]),
        ({"temperature": 1.0, "top_k": 2}, [2 / 3, 1 / 3, 0, 0, 0]),
        ({"temperature": 1.0, "top_p": 0.74}, [2 / 3, 1 / 3, 0, 0, 0]),
        ({"temperature": 1.0, "top_p": 0.76}, [4 / 7, 2 / 7, 1 / 7, 0, 0]),
        ({"temperature": 1.0, "top_k": 3, "top_p": 0.56}, [1, 0, 0, 0, 0]),
        ({"temperature": 0.5}, np.array([0.25, 0.0625, 0.015625, 0.005625, 0.0025]) / 0.33625),
    ],
    ids=str,
)
def test_distribution(params: dict[str, Any], expected: Any) -> None:
    found = frequencies(params)
    for got, want in zip(found, expected, strict=True):
        assert abs(got - want) < 4 * math.sqrt(max(want * (1 - want), 0) / 2000) + 1e-9


def test_temperature_zero_is_greedy_whatever_else_is_set() -> None:
    params = SamplingParams(temperature=0, top_k=50, top_p=0.1, seed=9)
    assert draw(LOGITS, [params], [0]) == [0]


@pytest.mark.parametrize("temperature", [1e-6, 1e-40, 5e-324])
@pytest.mark.parametrize("filters", [{}, {"top_k": 3}, {"top_p": 0.9}], ids=str)
@pytest.mark.filterwarnings("error")
def test_a_tiny_temperature_does_not_overflow(temperature: float, filters: dict[str, Any]) -> None:
    params = SamplingParams(temperature=temperature, **filters)
    assert draw(LOGITS * 100, [params], [0]) == [0]


@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_logits_that_are_not_numbers(value: float, temperature: float) -> None:
    logits = np.zeros((2, 9), dtype=np.float32)
    logits[1, 4] = value
    with pytest.raises(RunError, match=r"not finite \(row 1\)"):
        draw(logits, [SamplingParams(temperature=temperature)] * 2, [0, 0])


def test_masked_tokens_are_never_drawn() -> None:
    logits = np.full((1, 1500), -np.inf, dtype=np.float32)
    logits[0, [3, 700, 1499]] = 0
    for params in ({}, {"top_k": 5}, {"top_p": 0.9}):
        tokens = {
            draw(logits, [SamplingParams(temperature=1, seed=s, **params)], [0])[0]
            for s in range(60)
        }
        assert tokens == {3, 700, 1499}


@given(
    st.integers(1, 2000),
    st.integers(1, 512),
    st.integers(0, 2**32 - 1),
    st.sampled_from([0, 3, 10**6]),
)
def test_likeliest_is_a_stable_sort(size: int, count: int, seed: int, values: int) -> None:
    """Few different values make ties, many make none."""
    row = np.random.default_rng(seed).integers(0, values, size, endpoint=True).astype(np.float32)
    expected = np.argsort(-row, kind="stable")[:count]
    assert likeliest(row, count).tolist() == expected.tolist()


@pytest.mark.parametrize(
    ("temperature", "top_k", "top_p"),
    [(1.0, 0, 1.0), (0.8, 0, 0.9), (0.7, 40, 1.0), (1.3, 50, 0.8), (2.5, 256, 1.0)],
)
def test_distribution_is_transformers(temperature: float, top_k: int, top_p: float) -> None:
    """Chi-square of 5,000 draws against the probabilities transformers' warpers leave."""
    import torch
    from transformers.generation.logits_process import (
        TemperatureLogitsWarper,
        TopKLogitsWarper,
        TopPLogitsWarper,
    )

    logits = np.random.default_rng(1).normal(size=(1, 1200)).astype(np.float32) * 2
    scores = TemperatureLogitsWarper(temperature)(None, torch.from_numpy(logits))
    if top_k:
        scores = TopKLogitsWarper(top_k)(None, scores)
    if top_p < 1:
        scores = TopPLogitsWarper(top_p)(None, scores)
    expected = scores.softmax(-1)[0].double().numpy()

    count = 5_000
    hits = np.zeros(expected.size)
    for seed in range(count):
        params = SamplingParams(temperature=temperature, top_k=top_k, top_p=top_p, seed=seed)
        hits[draw(logits, [params], [seed % 7])[0]] += 1
    assert not hits[expected == 0].any()

    common = expected * count >= 5  # the rest is one class
    observed = np.append(hits[common], hits[~common].sum())
    wanted = np.append(expected[common], expected[~common].sum()) * count
    square = float((((observed - wanted) ** 2) / np.maximum(wanted, 1e-9)).sum())
    freedom = int(common.sum())
    assert square < freedom + 4 * math.sqrt(2 * freedom)


@given(st.integers(1, 1600), st.integers(0, 2**32 - 1), st.floats(0, 1, exclude_max=True))
def test_sums_by_blocks_leave_no_seam(size: int, seed: int, u: float) -> None:
    """Where the running sum of everything would put it, give or take its rounding."""
    weights = np.random.default_rng(seed).exponential(size=size).astype(np.float32)
    index = by_blocks(weights, u)
    running = np.cumsum(weights.astype(np.float64)) / weights.sum(dtype=np.float64)
    assert (running[index - 1] if index else 0.0) - 1e-12 <= u <= running[index] + 1e-12


def test_positions_draw_anew_and_alike() -> None:
    flat = np.zeros((1, 100), dtype=np.float32)
    params = SamplingParams(temperature=1, seed=5)
    first = [draw(flat, [params], [p])[0] for p in range(40)]
    assert first == [draw(flat, [params], [p])[0] for p in range(40)]
    assert len(set(first)) > 20


def test_ties_go_to_the_lower_id() -> None:
    flat = np.zeros((1, 600), dtype=np.float32)
    hot = SamplingParams(temperature=1)
    assert draw(flat, [SamplingParams()], [0]) == [0]
    assert draw(flat.repeat(2, axis=0), [SamplingParams(seed=3), hot], [0, 0])[0] == 0
    tokens = {
        draw(flat, [SamplingParams(temperature=1, top_k=3, seed=s)], [0])[0] for s in range(99)
    }
    assert tokens == {0, 1, 2}


def test_a_wide_nucleus_is_measured_over_the_whole_vocabulary() -> None:
    """top_p 0.5 of a flat distribution over 400 is 200 tokens, not half of the likeliest 256."""
    flat = np.zeros((1, 400), dtype=np.float32)
    tokens = {
        draw(flat, [SamplingParams(temperature=1, top_p=0.5, seed=s)], [0])[0] for s in range(3000)
    }
    assert max(tokens) == 199


def test_a_row_does_not_depend_on_its_neighbours() -> None:
    rng = np.random.default_rng(0)
    logits = rng.normal(size=(6, 700)).astype(np.float32)
    params = [
        SamplingParams(temperature=1.0, seed=1),
        SamplingParams(),
        SamplingParams(temperature=0.7, top_k=20, seed=2),
        SamplingParams(temperature=0.7, top_p=0.9, seed=1),
        SamplingParams(temperature=1.0, seed=1),
        SamplingParams(temperature=1e-6),
    ]
    alone = [draw(logits[i : i + 1], [params[i]], [4 + i])[0] for i in range(6)]
    for order in ([0, 1, 2, 3, 4, 5], [5, 3, 1, 0, 4, 2], [2, 4]):
        together = draw(logits[order], [params[i] for i in order], [4 + i for i in order])
        assert together == [alone[i] for i in order]
