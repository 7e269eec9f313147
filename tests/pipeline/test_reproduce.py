"""How often a compile fails, with how sure that is."""

from __future__ import annotations

import random

import pytest

from neuroncompile.backends.nxdi.failures import Failure, classify
from neuroncompile.errors import UsageError
from neuroncompile.pipeline.reproduce import CrashRate, crash_rate, tries_for, wilson

RACE = classify(["[INTERNAL_ERROR] [NCC_IINL902] pass INL"])
KILLED = classify(["Killed"])


@pytest.mark.parametrize(
    ("hits", "runs", "confidence", "low", "high"),
    [
        (0, 10, 0.95, 0.0, 0.2775),
        (10, 10, 0.95, 0.7225, 1.0),
        (1, 8, 0.95, 0.0224, 0.4709),
        (5, 10, 0.95, 0.2366, 0.7634),
        (81, 263, 0.95, 0.2553, 0.3662),  # Newcombe 1998, table I
        (15, 148, 0.95, 0.0624, 0.1605),
        (0, 20, 0.95, 0.0, 0.1611),
        (1, 29, 0.95, 0.0061, 0.1718),
        (5, 10, 0.99, 0.1842, 0.8158),
    ],
)
def test_wilsons_interval(hits: int, runs: int, confidence: float, low: float, high: float) -> None:
    assert wilson(hits, runs, confidence) == pytest.approx((low, high), abs=6e-5)


def test_no_runs_say_nothing() -> None:
    assert wilson(0, 0) == (0.0, 1.0)
    assert CrashRate(0, ()).rate == 0.0


def test_the_interval_holds_about_as_often_as_it_says() -> None:
    dice = random.Random(1)
    for rate in (0.05, 0.125, 0.5):
        held = 0
        for _ in range(500):
            hits = sum(dice.random() < rate for _ in range(40))
            low, high = wilson(hits, 40)
            held += low <= rate <= high
        assert 0.92 <= held / 500 <= 0.99


def test_a_compile_that_fails_one_time_in_eight() -> None:
    seen: list[tuple[int, bool]] = []
    found = crash_rate(
        lambda number: RACE if number % 8 == 0 else None,
        16,
        on_run=lambda number, failure: seen.append((number, failure is None)),
    )
    assert (found.runs, found.rate, found.codes) == (16, 0.125, {"NCC_IINL902": 2})
    assert found.interval() == pytest.approx((0.0350, 0.3602), abs=1e-4)
    assert found.verdict == "2 of 16 runs failed: 2 × NCC_IINL902; 3 to 36 % (95 %)"
    assert seen == [(n, n % 8 != 0) for n in range(1, 17)]


def test_always_and_never() -> None:
    always = crash_rate(lambda number: RACE if number > 1 else KILLED, 5)
    assert always.codes == {"NCC_IINL902": 4, "oom_host": 1}
    assert always.verdict == (
        "all 5 runs failed: 4 × NCC_IINL902, 1 × oom_host; the rate is at least 57 % (95 %)"
    )
    never = crash_rate(lambda number: None, 20)
    assert never.verdict == "0 of 20 runs failed; the rate is at most 16 % (95 %)"


@pytest.mark.parametrize(
    "failure",
    [classify([], interrupted=True), classify(["[Errno 28] No space left on device"])],
)
def test_what_is_not_the_compilers_doing_ends_it_and_counts_nowhere(failure: Failure) -> None:
    found = crash_rate(lambda number: failure if number == 4 else RACE, 10)
    assert (found.runs, len(found.failures)) == (3, 3)


def test_an_interruption_leaves_what_there_is() -> None:
    def run(number: int) -> Failure | None:
        if number == 3:
            raise KeyboardInterrupt
        return None

    assert crash_rate(run, 10) == CrashRate(2, ())


def test_at_least_one_run() -> None:
    with pytest.raises(UsageError, match="--reproduce 0"):
        crash_rate(lambda number: None, 0)


@pytest.mark.parametrize(
    ("rate", "tries"), [(1.0, 1), (0.96, 1), (0.5, 5), (0.25, 11), (0.125, 20), (0.0, 20)]
)
def test_tries_that_make_it_sure(rate: float, tries: int) -> None:
    assert tries_for(rate) == tries
    if 0 < rate < 1 and tries < 20:
        assert (1 - rate) ** tries <= 0.05 < (1 - rate) ** (tries - 1)
