"""Sampling parameters, where they come from, and the draw.

One meaning each, on every backend:

* temperature: logits are divided by it; 0 is greedy, whatever else is set.
* top_k: the k likeliest tokens, renormalised; 0, −1 and None are off.
* top_p: of what top_k left, the fewest likeliest tokens whose probabilities sum to at least p.
  Without top_k the sum is over the exact distribution of the whole vocabulary, and at most
  the 256 likeliest tokens are kept.
* seed: with the token's position it fixes the draw; nothing else does.

Precedence: command line, then request, then generation_config.json, then default. Decoding is
greedy unless the command line or the request asks for sampling: a checkpoint that was saved
with `do_sample` does not make a tool's output random by itself.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from neuroncompile.errors import ConfigError
from neuroncompile.runtime.philox import uniform

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["TOP_K_LIMIT", "Sampling", "SamplingParams", "draw", "resolve_sampling"]

TOP_K_LIMIT = 256  # NxDI's global_topk: the widest top-k its graphs are compiled for


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """How one request is decoded; validated when made.

    Attributes:
        temperature: ≥ 0; 0 is greedy.
        top_k: 1 … 256, or 0 for off.
        top_p: in (0, 1].
        seed: 0 … 2^64−1.
        max_new_tokens: ≥ 1, or None for as many as fit.
        stop: texts that end the answer; not part of it.
    """

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    seed: int = 0
    max_new_tokens: int | None = None
    stop: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        _require(
            _real(self.temperature) and 0 <= self.temperature < math.inf,
            "temperature",
            self.temperature,
            "a number ≥ 0 (0 is greedy)",
        )
        _require(
            _whole(self.top_k) and 0 <= self.top_k <= TOP_K_LIMIT,
            "top_k",
            self.top_k,
            f"1 to {TOP_K_LIMIT}; 0 or -1 is off",
        )
        _require(
            _real(self.top_p) and 0 < self.top_p <= 1,
            "top_p",
            self.top_p,
            "more than 0, at most 1 (1 is off)",
        )
        _require(_whole(self.seed) and 0 <= self.seed < 2**64, "seed", self.seed, "0 to 2^64-1")
        _require(
            self.max_new_tokens is None
            or (_whole(self.max_new_tokens) and self.max_new_tokens >= 1),
            "max_new_tokens",
            self.max_new_tokens,
            "a whole number ≥ 1",
        )
        _require(
            isinstance(self.stop, tuple) and all(isinstance(s, str) and s for s in self.stop),
            "stop",
            self.stop,
            "texts, none of them empty",
        )

    @property
    def greedy(self) -> bool:
        """Whether no draw is made."""
        return self.temperature == 0


@dataclass(frozen=True, slots=True)
class Sampling:
    """Parameters with the layer that set each."""

    params: SamplingParams
    origins: Mapping[str, str]

    def rows(self) -> dict[str, dict[str, Any]]:
        """name → {"value", "origin"}, for `--json`."""
        values = {name: getattr(self.params, name) for name in self.origins}
        return {n: {"value": v, "origin": self.origins[n]} for n, v in values.items()}


def resolve_sampling(
    *,
    command_line: Mapping[str, Any],
    request: Mapping[str, Any],
    generation_config: Mapping[str, Any],
) -> Sampling:
    """Lay the layers over each other; None in a layer means it does not say.

    A seed nobody gave is drawn from the system, so the result can say it.

    Raises:
        ConfigError: an illegal value, with its field and the legal ones.
    """
    layers = (("flag", command_line), ("request", request))
    asked = {
        name: (value, origin)
        for origin, layer in reversed(layers)
        for name, value in layer.items()
        if value is not None
    }
    sample = _asks_to_sample({name: value for name, (value, _) in asked.items()})
    values: dict[str, Any] = {}
    origins: dict[str, str] = {}
    for name, default in _DEFAULTS.items():
        if name in asked:
            values[name], origins[name] = asked[name]
        elif sample and name in _FROM_CHECKPOINT and generation_config.get(name) is not None:
            values[name], origins[name] = generation_config[name], "generation_config"
        else:
            values[name], origins[name] = default, "default"
    if values["temperature"] is None:
        values["temperature"] = 1.0 if sample else 0.0
    if values["seed"] is None:
        values["seed"] = int.from_bytes(os.urandom(4), "big") if sample else 0
        origins["seed"] = "drawn" if sample else "default"
    values["top_k"] = _top_k(values["top_k"], origins["top_k"])
    values["stop"] = tuple(values["stop"])
    return Sampling(SamplingParams(**values), origins)


_DEFAULTS: dict[str, Any] = {
    "temperature": None,  # 0, or 1 once sampling was asked for
    "top_k": 0,
    "top_p": 1.0,
    "seed": None,
    "max_new_tokens": None,
    "stop": (),
}
_FROM_CHECKPOINT = ("temperature", "top_k", "top_p")


def draw(
    logits: NDArray[np.float32], params: Sequence[SamplingParams], positions: Sequence[int]
) -> list[int]:
    """The next token of each row.

    Args:
        logits: float32 [B, vocab].
        params: one per row.
        positions: position the drawn token will have in its sequence.

    Returns:
        Token ids; ties go to the lower id.
    """
    if all(p.greedy for p in params):
        return [int(token) for token in logits.argmax(axis=-1)]
    return [
        int(row.argmax()) if p.greedy else _draw(row, p, position)
        for row, p, position in zip(logits, params, positions, strict=True)
    ]


def _draw(logits: NDArray[np.float32], params: SamplingParams, position: int) -> int:
    import numpy as np

    scaled = logits.astype(np.float64) / params.temperature
    weights = np.exp(scaled - scaled.max())
    u = uniform(params.seed, position)
    if params.top_k == 0 and params.top_p == 1:
        return _inverse(weights, u * weights.sum())
    width = min(params.top_k or TOP_K_LIMIT, weights.size)
    least = np.partition(weights, weights.size - width)[weights.size - width]
    likeliest = np.flatnonzero(weights >= least)  # more than `width` when the last ones tie
    likeliest = likeliest[np.argsort(-weights[likeliest], kind="stable")][:width]
    kept = weights[likeliest]
    total = kept.sum() if params.top_k else weights.sum()
    before = np.cumsum(kept) - kept
    kept = kept[before < params.top_p * total]  # the token that crosses p stays
    return int(likeliest[_inverse(kept, u * kept.sum())])


def _inverse(weights: NDArray[np.float64], point: float) -> int:
    """Index of the interval of the running sum that holds `point`."""
    import numpy as np

    running = np.cumsum(weights)
    return min(int(np.searchsorted(running, point, side="right")), weights.size - 1)


def _asks_to_sample(asked: Mapping[str, Any]) -> bool:
    if "temperature" in asked:
        return bool(asked["temperature"] != 0)
    return any(name in asked for name in ("top_k", "top_p"))


def _top_k(value: Any, origin: str) -> Any:
    if value == -1:
        return 0
    if origin == "generation_config" and _whole(value) and value > TOP_K_LIMIT:
        return TOP_K_LIMIT  # a checkpoint's default must not refuse every request
    return value


def _require(fine: bool, field: str, value: Any, legal: str) -> None:
    if not fine:
        raise ConfigError(
            f"{field} is {value!r}; legal: {legal}",
            field=field,
            value=value,
            legal=legal,
            hint=f"choose a legal --{field.replace('_', '-')}, or leave it out",
        )


def _real(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
