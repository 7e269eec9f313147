"""Two processes: one stands still at each of its calls while the other runs."""

from __future__ import annotations

from typing import Any

import pytest

pytestmark = pytest.mark.slow

PAIRS = [
    ("publish", "collect"),
    ("collect", "publish"),
    ("collect", "publish-again"),
    ("publish-again", "collect"),
    ("adopt", "collect"),
    ("publish", "remove"),
    ("remove", "publish"),
    ("publish", "publish-other"),
    ("publish", "damage"),
    ("publish-scribbled", "scribble"),
    ("damage", "quick"),
    ("lease", "collect"),
    ("collect", "lease"),
    ("lease", "remove"),
    ("remove", "lease"),
    ("pin", "collect"),
    ("collect", "pin"),
    ("pin", "remove"),
    ("remove", "pin"),
    ("view", "collect"),
    ("collect", "collect"),
]


@pytest.mark.parametrize(("first", "second"), PAIRS, ids=["-".join(pair) for pair in PAIRS])
def test_second_runs_at_every_call_of_the_first(
    drive: Any, counts: Any, first: str, second: str
) -> None:
    told = drive("pairs", first, second)
    counts(f"{second} during {first}", told["counts"])
    assert not told["wrong"], "\n".join(told["wrong"][:10])
    assert told["counts"]["interleavings"] == told["counts"]["calls"] > 5
