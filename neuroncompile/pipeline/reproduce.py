"""How often a compile fails: a rate, and how sure it is.

A compiler with a data race fails in one of eight runs or one of eighty, and a change that seems
to help may only have been lucky. The interval is Wilson's score interval (1927), which holds for
few runs and for rates near 0 and 1, where the usual one does not.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from statistics import NormalDist
from typing import NamedTuple

from neuroncompile.backends.nxdi.failures import Failure
from neuroncompile.errors import UsageError

__all__ = ["CrashRate", "crash_rate", "tries_for", "wilson"]


class CrashRate(NamedTuple):
    """What a number of runs of one compile came to.

    Attributes:
        runs: that ended by themselves; an interrupted one counts nowhere.
        failures: every failure, in order.
    """

    runs: int
    failures: tuple[Failure, ...]

    @property
    def rate(self) -> float:
        """The share of runs that failed."""
        return len(self.failures) / self.runs if self.runs else 0.0

    def interval(self, confidence: float = 0.95) -> tuple[float, float]:
        """Between which rates the true one lies."""
        return wilson(len(self.failures), self.runs, confidence)

    @property
    def codes(self) -> dict[str, int]:
        """Code, or class where there is none → how many runs, the most frequent first."""
        counts = Counter(failure.code or failure.cls for failure in self.failures)
        return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))

    @property
    def verdict(self) -> str:
        """In one line: does it always fail, now and then, or never?"""
        low, high = (f"{100 * share:.0f}" for share in self.interval())
        seen = ", ".join(f"{count} × {code}" for code, count in self.codes.items())
        if not self.failures:
            return f"0 of {self.runs} runs failed; the rate is at most {high} % (95 %)"
        if len(self.failures) == self.runs:
            return f"all {self.runs} runs failed: {seen}; the rate is at least {low} % (95 %)"
        return f"{len(self.failures)} of {self.runs} runs failed: {seen}; {low} to {high} % (95 %)"


def crash_rate(
    run: Callable[[int], Failure | None],
    runs: int,
    *,
    on_run: Callable[[int, Failure | None], None] = lambda number, failure: None,
) -> CrashRate:
    """Compile the same `runs` times and count.

    An interruption ends it early with what there is; so does a host that is at fault (a full
    disk, a missing library), which says nothing of the compiler.

    Args:
        run: compiles once, from nothing, with no cache; told the run's number from 1.
        on_run: told each run's end.

    Raises:
        UsageError: fewer than one run.
    """
    if runs < 1:
        raise UsageError(f"--reproduce {runs}: at least one run", hint="for example --reproduce 20")
    failures: list[Failure] = []
    done = 0
    for number in range(1, runs + 1):
        try:
            failure = run(number)
        except KeyboardInterrupt:
            break
        on_run(number, failure)
        if failure is not None and failure.kind in ("interrupted", "environment"):
            break
        done += 1
        if failure is not None:
            failures.append(failure)
    return CrashRate(done, tuple(failures))


def wilson(hits: int, runs: int, confidence: float = 0.95) -> tuple[float, float]:
    """Wilson's score interval of a share, two-sided; (0, 1) of no runs at all."""
    if runs == 0:
        return 0.0, 1.0
    z = NormalDist().inv_cdf((1 + confidence) / 2)
    share, square = hits / runs, z * z / runs
    middle = (share + square / 2) / (1 + square)
    half = z / (1 + square) * math.sqrt(share * (1 - share) / runs + square / (4 * runs))
    low, high = max(0.0, middle - half), min(1.0, middle + half)
    return (0.0 if hits == 0 else low), (1.0 if hits == runs else high)


def tries_for(rate: float, confidence: float = 0.95, most: int = 20) -> int:
    """How many runs without a failure make it that sure that there is none of this rate.

    Args:
        rate: of failures, as measured; the lower end of its interval is the careful choice.
    """
    if rate >= 1:
        return 1
    if rate <= 0:
        return most
    return min(most, max(1, math.ceil(math.log(1 - confidence) / math.log(1 - rate))))
