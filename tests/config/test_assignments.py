from __future__ import annotations

import contextlib
import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from neuroncompile.config.assignments import parse_assignment, parse_value
from neuroncompile.errors import ConfigError


@pytest.mark.parametrize(
    ("text", "path", "value"),
    [
        ("seq_len=4096", ("seq_len",), 4096),
        ("a.b.c=1", ("a", "b", "c"), 1),
        (" a . b = 1 ", ("a", "b"), 1),
        ("x=true", ("x",), True),
        ("x=false", ("x",), False),
        ("x=null", ("x",), None),
        ('x="4"', ("x",), "4"),
        ("x='4'", ("x",), "4"),
        ("x=0.5", ("x",), 0.5),
        ("x=bfloat16", ("x",), "bfloat16"),
        ("x=True", ("x",), "True"),
        ("x=None", ("x",), "None"),
        ("x=[128,512]", ("x",), [128, 512]),
        ("x=128,512", ("x",), "128,512"),
        ('x={"a": {"b": [1, null]}}', ("x",), {"a": {"b": [1, None]}}),
        ("x=", ("x",), ""),
        ("x=a=b", ("x",), "a=b"),
        ("x=Infinity", ("x",), math.inf),
    ],
)
def test_values_are_typed(text: str, path: tuple[str, ...], value: Any) -> None:
    found = parse_assignment(text)
    assert found == (path, value)
    assert type(found[1]) is type(value)


@pytest.mark.parametrize("text", ["seq_len", "=4", "a..b=1", ".a=1", "a.=1", ""])
def test_what_is_no_assignment(text: str) -> None:
    with pytest.raises(ConfigError, match="NAME=VALUE") as caught:
        parse_assignment(text)
    assert caught.value.exit_code == 5


@pytest.mark.parametrize("text", ["[1,", '{"a":}', '"open', "NaN", "[NaN]"])
def test_broken_json_is_not_taken_for_a_word(text: str) -> None:
    with pytest.raises(ConfigError, match="not valid JSON") as caught:
        parse_value(text, field="x")
    assert caught.value.field == "x"


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=10,
)
NAME = st.from_regex(r"[a-z][a-z0-9_]{0,12}", fullmatch=True)


@given(st.lists(NAME, min_size=1, max_size=4), JSON)
def test_any_json_round_trips(names: list[str], value: Any) -> None:
    path, found = parse_assignment(f"{'.'.join(names)}={json.dumps(value)}")
    assert path == tuple(names)
    assert found == value
    assert json.dumps(found) == json.dumps(value)


@given(st.text())
def test_any_text_is_a_value_or_a_config_error(text: str) -> None:
    with contextlib.suppress(ConfigError):
        path, _ = parse_assignment(text)
        assert path
