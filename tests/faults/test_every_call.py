"""SIGKILL at every call of every protocol that changes something, and in the middle of writes."""

from __future__ import annotations

from typing import Any

import pytest

from tests.faults.operations import OPERATIONS

pytestmark = pytest.mark.slow


def judged(drive: Any, counts: Any, operation: str, fault: str) -> dict[str, int]:
    told = drive("driver", operation, fault)
    numbers: dict[str, int] = told["counts"]
    counts(f"{fault} in {operation}", numbers)
    assert not told["wrong"], "\n".join(told["wrong"][:10])
    return numbers


@pytest.mark.parametrize("operation", OPERATIONS)
def test_killed_at_every_call(drive: Any, counts: Any, operation: str) -> None:
    numbers = judged(drive, counts, operation, "kill")
    assert numbers["faults"] == numbers["calls"]


@pytest.mark.parametrize("operation", ["publish", "adopt", "name", "lease", "publish-by-rename"])
def test_killed_in_the_middle_of_every_write(drive: Any, counts: Any, operation: str) -> None:
    assert judged(drive, counts, operation, "torn")["faults"] > 2


NEEDING_SPACE = ("publish-first", "publish-over-broken-blob", "adopt", "name", "view", "lease")
USING = ("view-by-symlink", "lease", "lookup-quarantines", "reject")
FREEING = ("collect", "remove", "unpin")


@pytest.mark.parametrize("operation", NEEDING_SPACE)
def test_no_space_for_one_call(drive: Any, counts: Any, operation: str) -> None:
    """Refused with the cause and a hint, or not needed; nothing is left of it either way."""
    assert judged(drive, counts, operation, "ENOSPC")["faults"] > 5


@pytest.mark.parametrize("operation", ["publish", "pin", "repair", *USING, *FREEING])
def test_input_output_error_at_one_call(drive: Any, counts: Any, operation: str) -> None:
    assert judged(drive, counts, operation, "EIO")["faults"] > 2


@pytest.mark.parametrize("operation", ["publish", "name", "lease", *FREEING])
def test_disk_full_from_a_call_on(drive: Any, counts: Any, operation: str) -> None:
    numbers = judged(drive, counts, operation, "full")
    if operation in FREEING or operation == "lease":
        assert "refused" not in numbers, "a full disk must not keep anybody from using or freeing"


@pytest.mark.parametrize("fault", ["quota", "dead", "read-only"])
def test_disk_lost_from_a_call_on(drive: Any, counts: Any, fault: str) -> None:
    judged(drive, counts, "publish-second", fault)


@pytest.mark.parametrize("operation", ["publish", "adopt", "name", "lease"])
def test_every_write_is_short(drive: Any, counts: Any, operation: str) -> None:
    judged(drive, counts, operation, "short")
