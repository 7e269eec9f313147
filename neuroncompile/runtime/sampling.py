"""Sampling parameters: one meaning each on every backend, and where their values come from.

* temperature: logits are divided by it; 0 is greedy, whatever else is set.
* top_k: the k likeliest tokens, renormalised; 0, −1 and None are off. More tokens than the
  vocabulary has is the whole vocabulary.
* top_p: of what top_k left, the fewest likeliest tokens whose probabilities sum to at least p.
  Without top_k the sum is over the exact distribution of the whole vocabulary, and at most
  the 256 likeliest tokens are kept.
* seed: with the token's position it fixes the draw; nothing else does.
* max_new_tokens: None is as many as the compiled length holds.
* stop: texts that end the answer and are not part of it.

Precedence: command line, then request, then generation_config.json, then default. Decoding is
greedy unless the command line or the request asks for sampling: a checkpoint that was saved
with `do_sample` does not make a tool's output random by itself.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from neuroncompile.errors import ConfigError, nearest

__all__ = ["TOP_K_LIMIT", "Sampling", "SamplingParams", "resolve_sampling"]

TOP_K_LIMIT = 256  # NxDI's global_topk: the widest top-k its graphs are compiled for


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """How one request is decoded; validated when made.

    Attributes:
        temperature: ≥ 0; 0 is greedy.
        top_k: 1 … 256; 0 is off, and so are −1 and None, which become 0.
        top_p: in (0, 1]; 1 is off.
        seed: 0 … 2^64−1; requests that differ in nothing else draw alike.
        max_new_tokens: ≥ 1, or None for as many as fit.
        stop: texts that end the answer; a lone text or a list becomes a tuple.

    Raises:
        ConfigError: a value outside these.
    """

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    seed: int = 0
    max_new_tokens: int | None = None
    stop: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "top_k", _top_k(self.top_k))
        object.__setattr__(self, "stop", _stop(self.stop))
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
    """Effective parameters.

    Attributes:
        params: the values.
        origins: name → "flag", "request", "generation_config", "default" or, for a seed nobody
            gave, "drawn".
        notices: lines to show: what generation_config.json asks for and does not get.
    """

    params: SamplingParams
    origins: Mapping[str, str]
    notices: tuple[str, ...] = ()

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
        ConfigError: an unknown name, or an illegal value with its field and the legal ones.
    """
    asked: dict[str, tuple[Any, str]] = {}
    for origin, layer in (("request", request), ("flag", command_line)):
        _know(layer)
        asked |= {name: (value, origin) for name, value in layer.items() if value is not None}
    sample = _asks_to_sample({name: value for name, (value, _) in asked.items()})
    values: dict[str, Any] = {}
    origins: dict[str, str] = {}
    for name, default in _DEFAULTS.items():
        if name in asked:
            values[name], origins[name] = asked[name]
        elif _from_checkpoint(name, sample) and generation_config.get(name) is not None:
            values[name], origins[name] = generation_config[name], "generation_config"
        else:
            values[name], origins[name] = default, "default"
    if values["temperature"] is None:
        values["temperature"] = 1.0 if sample else 0.0
    if values["seed"] is None:
        values["seed"] = int.from_bytes(os.urandom(4), "big") if sample else 0
        origins["seed"] = "drawn" if sample else "default"
    notices = _not_applied(generation_config)
    if not sample and "temperature" not in asked:
        notices += _left_greedy(generation_config)
    if origins["top_k"] == "generation_config" and _above_limit(values["top_k"]):
        # A checkpoint's default must not refuse every request.
        notices.append(f"top_k {values['top_k']} of generation_config is capped at {TOP_K_LIMIT}")
        values["top_k"] = TOP_K_LIMIT
    return Sampling(_made(values, origins), origins, tuple(notices))


_DEFAULTS: dict[str, Any] = {
    "temperature": None,  # 0, or 1 once sampling was asked for
    "top_k": 0,
    "top_p": 1.0,
    "seed": None,
    "max_new_tokens": None,
    "stop": (),
}
# What generation_config.json may hold that changes tokens and is not done here → where it is off.
_NOT_APPLIED: dict[str, tuple[Any, ...]] = {
    "encoder_repetition_penalty": (1,),
    "epsilon_cutoff": (0,),
    "eta_cutoff": (0,),
    "min_length": (0,),
    "min_new_tokens": (0,),
    "min_p": (0,),
    "no_repeat_ngram_size": (0,),
    "num_beams": (1,),
    "penalty_alpha": (0,),
    "repetition_penalty": (1,),
    "suppress_tokens": ([],),
    "begin_suppress_tokens": ([],),
    "bad_words_ids": ([],),
    "sequence_bias": ({}, []),
    "forced_bos_token_id": (),
    "forced_eos_token_id": (),
    "stop_strings": ([], ""),
    "typical_p": (1,),
}


def _from_checkpoint(name: str, sample: bool) -> bool:
    """Whether generation_config.json may set this: a length always, randomness when asked for."""
    return name == "max_new_tokens" or (sample and name in ("temperature", "top_k", "top_p"))


def _not_applied(generation_config: Mapping[str, Any]) -> list[str]:
    return [
        f"{name} {generation_config[name]} of generation_config is not applied"
        for name, off in _NOT_APPLIED.items()
        if generation_config.get(name) is not None and generation_config[name] not in off
    ]


def _left_greedy(generation_config: Mapping[str, Any]) -> list[str]:
    """What a checkpoint says of sampling while nobody has asked for it, in one line at most."""
    if generation_config.get("do_sample"):
        return [
            "the model's generation_config samples by default; decoding greedily "
            "(--temperature asks for sampling)"
        ]
    neutral = {"temperature": (0, 1), "top_p": (1,)}
    named = [
        f"{name} {generation_config[name]}"
        for name, values in neutral.items()
        if generation_config.get(name) is not None and generation_config[name] not in values
    ]
    if not named:
        return []
    return [
        f"the model's generation_config has {' and '.join(named)} and does not say do_sample; "
        "decoding greedily (--temperature asks for sampling)"
    ]


def _know(layer: Mapping[str, Any]) -> None:
    for name in layer:
        if name not in _DEFAULTS:
            near = nearest(name, _DEFAULTS)
            raise ConfigError(
                f"unknown sampling parameter {name!r}",
                field=name,
                value=layer[name],
                legal=list(_DEFAULTS),
                hint=f"did you mean {near!r}?" if near else f"legal: {', '.join(_DEFAULTS)}",
            )


def _made(values: Mapping[str, Any], origins: Mapping[str, str]) -> SamplingParams:
    try:
        return SamplingParams(**values)
    except ConfigError as error:
        if error.field is None or origins[error.field] != "generation_config":
            raise
        raise ConfigError(
            f"generation_config.json: {error}",
            field=error.field,
            value=error.value,
            legal=error.legal,
            hint=f"give --{error.field.replace('_', '-')} to overrule the model's own",
        ) from None


def _asks_to_sample(asked: Mapping[str, Any]) -> bool:
    if "temperature" in asked:
        return bool(asked["temperature"] != 0)
    return any(name in asked for name in ("top_k", "top_p"))


def _above_limit(top_k: Any) -> bool:
    return bool(_whole(top_k) and top_k > TOP_K_LIMIT)


def _top_k(value: Any) -> Any:
    return 0 if value is None or (_whole(value) and value == -1) else value


def _stop(value: Any) -> Any:
    if isinstance(value, str):
        return (value,)
    return tuple(value) if isinstance(value, list) else value


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
