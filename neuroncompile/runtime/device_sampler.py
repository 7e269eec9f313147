"""Parameters for programs that choose tokens in their own graph.

What the graph computes is not what the host's sampler computes: it looks at `global_topk` tokens
first, takes the softmax over those alone, keeps tokens while their sum is at most top_p, and draws
without a seed (NxDI 0.9, modules/generation/sampling.py). So what it cannot honour is refused.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from neuroncompile.errors import ConfigError
from neuroncompile.runtime.sampling import Sampling, SamplingParams

__all__ = ["DeviceSampler", "check_device_sampling"]

GLOBAL_TOPK = 256  # NxDI's default


class DeviceSampler:
    """One composition of a batch, as `runtime.sampler.Sampler` is of the host.

    Args:
        params: one per row.
        global_topk: tokens that the graph looks at.

    Attributes:
        rows: float32 [B, 3] of top_k, top_p and temperature; a greedy row is (1, 1, 1), since
            temperature 0 is a division.
    """

    def __init__(self, params: Sequence[SamplingParams], global_topk: int = GLOBAL_TOPK) -> None:
        self.rows: NDArray[np.float32] = np.array(
            [
                (1, 1, 1) if p.greedy else (p.top_k or global_topk, p.top_p, p.temperature)
                for p in params
            ],
            dtype=np.float32,
        )

    def sample(self, tokens: NDArray[Any], positions: Sequence[int]) -> list[int]:
        """The tokens as the graph chose them."""
        chosen: list[int] = tokens.tolist()
        return chosen


def check_device_sampling(config: Mapping[str, Any], samplings: Sequence[Sampling]) -> None:
    """Refuse what a program with this `on_device_sampling_config` would ignore.

    Raises:
        ConfigError: naming the parameter, with both ways out.
    """
    fixed = not config.get("dynamic", False)
    widest = config.get("global_topk", GLOBAL_TOPK)
    for sampling in samplings:
        params = sampling.params
        asked = sampling.origins.get("seed") in ("flag", "request")
        if asked and not params.greedy and not config.get("deterministic", False):
            raise _refused("seed", params.seed, "draws without a seed", "--seed")
        if asked and not params.greedy:
            raise _refused("seed", params.seed, "draws the same number every time", "--seed")
        if params.top_k > widest:
            raise _refused("top_k", params.top_k, f"looks at {widest} tokens", "--top-k")
        if not fixed:
            continue
        if config.get("do_sample", False):
            if params.greedy:
                raise _refused("temperature", 0, "always samples, as it was built", "--greedy")
        elif not params.greedy:
            raise _refused(
                "temperature", params.temperature, "is greedy, as it was built", "--temperature"
            )


def _refused(field: str, value: Any, what: str, option: str) -> ConfigError:
    return ConfigError(
        f"{field} is {value}, and this program chooses tokens on the device, which {what}",
        field=field,
        value=value,
        legal="host sampling, or the parameter left out",
        hint=f"leave {option} out, or build without on_device_sampling_config (host sampling)",
    )
