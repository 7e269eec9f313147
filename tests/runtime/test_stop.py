"""Stop strings never leak, wherever the pieces are cut."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from neuroncompile.runtime.stop import StopMatcher


def run(stops: list[str], pieces: list[str]) -> tuple[str, str | None]:
    matcher = StopMatcher(stops)
    shown = ""
    for piece in pieces:
        text, stop = matcher.push(piece)
        shown += text
        if stop is not None:
            return shown, stop
    return shown + matcher.flush(), None


@pytest.mark.parametrize(
    ("stops", "pieces", "result"),
    [
        (["STOP"], ["abc ST", "OP def"], ("abc ", "STOP")),
        (["STOP"], ["abc ST", "ART"], ("abc START", None)),
        (["\n\n", "\nUser:"], ["hi\n", "User", ":x"], ("hi", "\nUser:")),
        (["ab", "abc"], ["x", "abc"], ("x", "ab")),
        (["bc", "abcd"], ["abcd"], ("a", "bc")),
        (["bc", "abc"], ["ab", "c"], ("", "abc")),
        (["aab"], ["aa", "ab"], ("a", "aab")),
        ([], ["a", "b"], ("ab", None)),
    ],
)
def test_cases(stops: list[str], pieces: list[str], result: tuple[str, str | None]) -> None:
    assert run(stops, pieces) == result


def test_text_is_shown_as_soon_as_it_cannot_be_a_stop() -> None:
    matcher = StopMatcher(["END"])
    assert matcher.push("abcE") == ("abc", None)
    assert matcher.push("x") == ("Ex", None)


ABC = st.text("abc", max_size=12)


@given(st.lists(st.text("abc", min_size=1, max_size=3), max_size=3), st.lists(ABC, max_size=6))
def test_cutting_does_not_matter(stops: list[str], pieces: list[str]) -> None:
    whole = "".join(pieces)
    shown, stop = run(stops, pieces)
    assert (shown, stop) == run(stops, [whole]) == run(stops, list(whole))
    assert whole.startswith(shown)
    assert not any(s in shown for s in stops)
    if stop is None:
        assert shown == whole
    else:
        assert whole[len(shown) :].startswith(stop)
