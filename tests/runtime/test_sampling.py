"""What each parameter means, where it comes from, and the distribution of the draw."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from neuroncompile.errors import ConfigError
from neuroncompile.runtime.sampling import SamplingParams, draw, resolve_sampling


def resolve(**layers: Any) -> Any:
    empty: dict[str, Any] = {"command_line": {}, "request": {}, "generation_config": {}}
    return resolve_sampling(**{**empty, **layers})


LOGITS = np.log(np.array([[0.5, 0.25, 0.125, 0.075, 0.05]], dtype=np.float32))


def frequencies(params: dict[str, Any], count: int = 4000) -> list[float]:
    hits = np.zeros(5)
    for seed in range(count):
        [token] = draw(LOGITS, [SamplingParams(**params, seed=seed)], [3])
        hits[token] += 1
    return [round(float(h), 3) for h in hits / count]


@pytest.mark.parametrize(
    ("params", "expected"),
    [
        ({"temperature": 1.0}, [0.5, 0.25, 0.125, 0.075, 0.05]),
        ({"temperature": 1.0, "top_k": 2}, [2 / 3, 1 / 3, 0, 0, 0]),
        ({"temperature": 1.0, "top_p": 0.75}, [2 / 3, 1 / 3, 0, 0, 0]),
        ({"temperature": 1.0, "top_p": 0.76}, [4 / 7, 2 / 7, 1 / 7, 0, 0]),
        ({"temperature": 1.0, "top_k": 3, "top_p": 0.5}, [1, 0, 0, 0, 0]),
        ({"temperature": 0.5}, np.array([0.25, 0.0625, 0.015625, 0.005625, 0.0025]) / 0.33625),
    ],
    ids=str,
)
def test_distribution(params: dict[str, Any], expected: Any) -> None:
    found = frequencies(params)
    for got, want in zip(found, expected, strict=True):
        assert abs(got - want) < 4 * math.sqrt(max(want * (1 - want), 0) / 4000) + 1e-9


def test_temperature_zero_is_greedy_whatever_else_is_set() -> None:
    params = SamplingParams(temperature=0, top_k=50, top_p=0.1, seed=9)
    assert draw(LOGITS, [params], [0]) == [0]


def test_a_tiny_temperature_does_not_overflow() -> None:
    assert draw(LOGITS * 100, [SamplingParams(temperature=1e-6)], [0]) == [0]


def test_ties_go_to_the_lower_id() -> None:
    flat = np.zeros((1, 600), dtype=np.float32)
    assert draw(flat, [SamplingParams()], [0]) == [0]
    tokens = {
        draw(flat, [SamplingParams(temperature=1, top_k=3, seed=s)], [0])[0] for s in range(99)
    }
    assert tokens == {0, 1, 2}


def test_a_wide_nucleus_is_measured_over_the_whole_vocabulary() -> None:
    """top_p 0.5 of a flat distribution over 400 is 200 tokens, not half of the likeliest 256."""
    flat = np.zeros((1, 400), dtype=np.float32)
    tokens = {
        draw(flat, [SamplingParams(temperature=1, top_p=0.5, seed=s)], [0])[0] for s in range(3000)
    }
    assert max(tokens) == 199


def test_a_row_does_not_depend_on_its_neighbours() -> None:
    rng = np.random.default_rng(0)
    logits = rng.normal(size=(3, 50)).astype(np.float32)
    params = [SamplingParams(temperature=1.0, seed=s) for s in (1, 2)] + [SamplingParams()]
    together = draw(logits, params, [4, 5, 6])
    alone = [draw(logits[i : i + 1], [params[i]], [4 + i])[0] for i in range(3)]
    assert together == alone


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("temperature", -1),
        ("temperature", math.inf),
        ("temperature", math.nan),
        ("temperature", "hot"),
        ("temperature", True),
        ("top_k", -2),
        ("top_k", 257),
        ("top_k", 1.5),
        ("top_p", 0),
        ("top_p", 1.1),
        ("seed", -1),
        ("seed", 2**64),
        ("max_new_tokens", 0),
        ("max_new_tokens", 2.0),
        ("stop", ("",)),
    ],
)
def test_illegal_values_are_refused_by_name(field: str, value: Any) -> None:
    with pytest.raises(ConfigError) as caught:
        resolve(
            command_line={field: value, **({} if field == "temperature" else {"temperature": 1})}
        )
    assert caught.value.field == field
    assert caught.value.legal


@pytest.mark.parametrize("top_k", [-1, 0, None])
def test_top_k_off(top_k: int | None) -> None:
    sampling = resolve(command_line={"temperature": 1.0, "top_k": top_k})
    assert sampling.params.top_k == 0


def test_greedy_unless_asked() -> None:
    checkpoint = {"do_sample": True, "temperature": 0.6, "top_p": 0.9}
    assert resolve(generation_config=checkpoint).params.greedy
    assert resolve(generation_config=checkpoint, command_line={"seed": 3}).params.greedy
    sampling = resolve(generation_config=checkpoint, command_line={"top_k": 40})
    assert (sampling.params.temperature, sampling.params.top_p) == (0.6, 0.9)
    assert sampling.origins["temperature"] == "generation_config"
    assert resolve(command_line={"top_k": 40}).params.temperature == 1.0


def test_precedence() -> None:
    sampling = resolve(
        command_line={"temperature": 0.1},
        request={"temperature": 0.2, "top_p": 0.3},
        generation_config={"temperature": 0.4, "top_p": 0.5, "top_k": 60},
    )
    assert sampling.rows()["temperature"] == {"value": 0.1, "origin": "flag"}
    assert sampling.rows()["top_p"] == {"value": 0.3, "origin": "request"}
    assert sampling.rows()["top_k"] == {"value": 60, "origin": "generation_config"}


def test_greedy_flag_beats_a_request_that_samples() -> None:
    assert resolve(command_line={"temperature": 0.0}, request={"temperature": 1.0}).params.greedy


def test_a_drawn_seed_is_told() -> None:
    sampling = resolve(command_line={"temperature": 1.0})
    assert sampling.origins["seed"] == "drawn"
    assert sampling.params.seed == sampling.rows()["seed"]["value"]
