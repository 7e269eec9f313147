"""How long neuronx-cc will take, as a range, and what it rests on.

    minutes for two graphs = 3.5 x (billions of parameters on a rank) ^ 0.57

A least-squares line through the logarithms of 51 models that NxD Inference's contributed READMEs
report (trn1.32xlarge, bfloat16, batch 1, one context-encoding and one token-generation graph,
tensor parallelism 1 to 8). Its residuals are a factor of 1.6 at one standard deviation; half to
three times the figure holds 48 of the 51, and three of four larger programs on trn2 that were not
fitted; the fourth took 0.48 of it.
Size explains little more than that: layer code, kernels and flags decide as much.

NxD compiles the first token-generation graph alone, since its weight layout is copied into all
others, and then the others side by side. So n graphs with j compilers at once take
1 + ceil((n - 1) / j) of such steps where two take two.
"""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["MEASURED_TOKENS", "Minutes", "compile_minutes", "pair_seconds"]

SECONDS, EXPONENT = 212.6, 0.567
MEASURED_TOKENS = 2048
"""The longest graph among those measured; longer ones are beyond what the rule knows."""
LOW, HIGH = 0.5, 3.0

_LEAST = 0.1  # billions; below it the models measured no longer get faster


class Minutes(NamedTuple):
    """Minutes of compiling: the ends of the range and the rule's own figure."""

    low: float
    typical: float
    high: float


def pair_seconds(parameters: float, ranks: int) -> float:
    """The rule: seconds for two graphs of a model split over `ranks`."""
    return float(SECONDS * max(parameters / ranks / 1e9, _LEAST) ** EXPONENT)


def compile_minutes(parameters: float, ranks: int, graphs: int, jobs: int) -> Minutes:
    """The range for all graphs of a program.

    Args:
        parameters: of the whole model.
        ranks: what they are divided by.
        graphs: how many are compiled.
        jobs: compilers at once.
    """
    steps = 1 + -(-(graphs - 1) // max(1, jobs)) if graphs else 0
    typical = pair_seconds(parameters, ranks) / 2 * steps / 60
    return Minutes(typical * LOW, typical, typical * HIGH)
