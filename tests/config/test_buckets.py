from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from neuroncompile.config.buckets import context_encoding, derive, token_generation


@pytest.mark.parametrize(
    ("length", "expected"),
    [
        (1, [1]),
        (64, [64]),
        (100, [100]),
        (128, [128]),
        (129, [129]),
        (150, [150]),
        (182, [128, 182]),  # log2 rounds up from 181.02 on
        (200, [128, 200]),
        (256, [128, 256]),
        (300, [128, 300]),
        (513, [128, 256, 513]),
        (1024, [128, 256, 512, 1024]),
        (2048, [128, 256, 512, 1024, 2048]),
        (12800, [128, 256, 512, 1024, 2048, 4096, 8192, 12800]),
    ],
)
def test_derivation_is_nxdis(length: int, expected: list[int]) -> None:
    assert derive(length) == expected


def test_off_is_the_whole_length() -> None:
    assert context_encoding(1000, enable_bucketing=False) == [1000]
    assert token_generation(2048, enable_bucketing=False) == [2048]
    assert context_encoding(1024) == [128, 256, 512, 1024]
    assert token_generation(300) == [128, 300]


@given(st.integers(1, 1 << 20))
def test_buckets_ascend_to_the_length(length: int) -> None:
    found = derive(length)
    assert found == sorted(set(found))
    assert found[-1] == length
    assert all(width & (width - 1) == 0 and width >= 128 for width in found[:-1])
    if length > 128:
        # A prompt is padded to at most 2.83 times itself once it is past the smallest bucket.
        assert all(b <= 2 * 2**0.5 * a for a, b in pairwise(found))
