"""Canonical bytes, against the rfc8785 package."""

from __future__ import annotations

import math
from enum import Enum
from typing import Any

import pytest
import rfc8785
from hypothesis import given
from hypothesis import strategies as st

from neuroncompile.errors import ConfigError
from neuroncompile.keys import canonical, canonical_bytes, canonical_number

BMP = st.text(st.characters(max_codepoint=0xFFFF, exclude_categories=["Cs"]))
LEAVES = st.none() | st.booleans() | BMP | st.integers(-(2**53) + 1, 2**53 - 1)
DOMAIN = st.recursive(
    LEAVES, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(BMP, inner, max_size=4)
)


@given(DOMAIN)
def test_bytes_are_rfc_8785s(value: Any) -> None:
    assert canonical_bytes(value) == rfc8785.dumps(value)


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_equal_numbers_have_one_spelling(value: float) -> None:
    spelt = canonical_number(value)
    assert float(spelt) == value
    assert canonical_number(float(spelt)) == spelt


@pytest.mark.parametrize(
    ("value", "spelt"),
    [
        (10000.0, 10000),
        (1e-05, "1e-05"),
        (0.5, "0.5"),
        (-0.0, 0),
        (math.inf, "inf"),
        (-math.inf, "-inf"),
        (math.nan, "nan"),
        (1e300, "1e+300"),
    ],
)
def test_numbers(value: float, spelt: int | str) -> None:
    assert canonical_number(value) == spelt
    assert type(canonical_number(value)) is type(spelt)


def test_integer_and_float_of_one_value_are_one() -> None:
    assert canonical_bytes({"rope_theta": 10000}) == canonical_bytes({"rope_theta": 1e4})


def test_booleans_are_not_numbers() -> None:
    assert canonical_bytes([True, 1, 1.0]) == b"[true,1,1]"


@pytest.mark.parametrize(
    ("value", "path"),
    [({"a": {"b": 2**53}}, ".a.b"), ({"a": [object()]}, r".a\[0\]"), ({"a": {1: 2}}, ".a")],
)
def test_outside_the_domain_is_named(value: Any, path: str) -> None:
    with pytest.raises(ConfigError, match=path):
        canonical(value)


@pytest.mark.parametrize("value", [{"a": "\ud800"}, {"a": {"\udfff": 1}}])
def test_half_a_surrogate_pair_is_refused(value: Any) -> None:
    with pytest.raises(ConfigError, match=r"\.a .*surrogate"):
        canonical(value)


def test_a_string_enumeration_is_its_value() -> None:
    class Activation(str, Enum):  # noqa: UP042 - StrEnum's str() is its value already
        SILU = "silu"

    assert canonical_bytes([Activation.SILU]) == b'["silu"]'


def test_keys_beyond_the_bmp_would_sort_otherwise() -> None:
    with pytest.raises(ConfigError, match="BMP"):
        canonical_bytes({"\U0001f389": 1})
