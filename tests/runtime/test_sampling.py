"""What each parameter may be, and where its value comes from."""

from __future__ import annotations

import math
from itertools import product
from typing import Any

import pytest

from neuroncompile.errors import ConfigError
from neuroncompile.runtime.sampling import SamplingParams, resolve_sampling


def resolve(**layers: Any) -> Any:
    empty: dict[str, Any] = {"command_line": {}, "request": {}, "generation_config": {}}
    return resolve_sampling(**{**empty, **layers})


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


def test_the_whole_grid() -> None:
    top_ks: list[Any] = [-2, -1, 0, 1, 256, 257, 1.5, None, True, "40"]
    top_ps = [0, 0.5, 1.0, 1.1, None]
    temperatures = [-1, 0, 1e-6, 1.0, None]
    for top_k, top_p, temperature, seed in product(top_ks, top_ps, temperatures, [None, 0, 7, -1]):
        asked = {"top_k": top_k, "top_p": top_p, "temperature": temperature, "seed": seed}
        legal = (
            top_k in [*top_ks[1:5], None]
            and top_k is not True
            and top_p in (0.5, 1.0, None)
            and temperature != -1
            and seed != -1
        )
        if not legal:
            with pytest.raises(ConfigError):
                resolve(command_line=asked)
            continue
        params = resolve(command_line=asked).params
        silent = temperature is None and top_k is None and top_p is None
        assert params.greedy == (temperature == 0 or silent), asked
        assert params.top_k == (top_k if top_k in (1, 256) else 0), asked


def test_made_directly() -> None:
    """From Python the same spellings count as on the command line."""
    assert SamplingParams(top_k=-1) == SamplingParams(top_k=None) == SamplingParams()  # type: ignore[arg-type]
    assert SamplingParams(stop="END").stop == ("END",)  # type: ignore[arg-type]
    assert SamplingParams(stop=["a", "b"]).stop == ("a", "b")  # type: ignore[arg-type]
    assert resolve(request={"stop": "END"}).params.stop == ("END",)


def test_unknown_names_are_not_dropped() -> None:
    with pytest.raises(ConfigError, match="'temprature'") as caught:
        resolve(request={"temprature": 1.0})
    assert caught.value.hint == "did you mean 'temperature'?"


def test_what_the_checkpoint_asks_for_and_does_not_get_is_said() -> None:
    neutral = {"repetition_penalty": 1.0, "min_p": 0.0, "num_beams": 1, "suppress_tokens": None}
    assert resolve(generation_config=neutral).notices == ()
    sampling = resolve(generation_config={"repetition_penalty": 1.1, "no_repeat_ngram_size": 3})
    assert [n.split()[0] for n in sampling.notices] == [
        "no_repeat_ngram_size",
        "repetition_penalty",
    ]


def test_a_wide_top_k_of_the_checkpoint_is_capped_and_said() -> None:
    sampling = resolve(command_line={"temperature": 1}, generation_config={"top_k": 1000})
    assert (sampling.params.top_k, sampling.origins["top_k"]) == (256, "generation_config")
    assert "capped at 256" in sampling.notices[0]


def test_a_bad_checkpoint_value_is_blamed_on_the_checkpoint() -> None:
    bad = {"top_p": 7}
    assert resolve(generation_config=bad).params.greedy
    with pytest.raises(ConfigError, match=r"generation_config.json: top_p is 7"):
        resolve(command_line={"temperature": 1}, generation_config=bad)
    assert (
        resolve(command_line={"temperature": 1, "top_p": 0.9}, generation_config=bad).params.top_p
        == 0.9
    )


def test_the_length_of_a_checkpoint_counts_even_when_greedy() -> None:
    sampling = resolve(generation_config={"max_new_tokens": 20})
    assert sampling.rows()["max_new_tokens"] == {"value": 20, "origin": "generation_config"}
    assert (
        resolve(
            command_line={"max_new_tokens": 5}, generation_config={"max_new_tokens": 20}
        ).params.max_new_tokens
        == 5
    )


@pytest.mark.parametrize(
    ("checkpoint", "words"),
    [
        ({"temperature": 0.9, "top_p": 0.6}, "temperature 0.9 and top_p 0.6"),
        ({"temperature": 0.9, "top_p": 0.6, "do_sample": False}, "temperature 0.9 and top_p 0.6"),
        ({"temperature": 0.6, "do_sample": True}, "samples by default"),
        ({"temperature": 1.0, "top_p": 1.0}, None),
        ({"eos_token_id": 2}, None),
    ],
)
def test_a_checkpoint_that_speaks_of_sampling_is_greedy_and_told_once(
    checkpoint: dict[str, Any], words: str | None
) -> None:
    resolved = resolve_sampling(command_line={}, request={}, generation_config=checkpoint)
    assert resolved.params.greedy
    assert len(resolved.notices) == (words is not None)
    assert words is None or words in resolved.notices[0]
    asked = resolve_sampling(
        command_line={"temperature": 0.0}, request={}, generation_config=checkpoint
    )
    assert asked.notices == (), "who asks for greedy needs no telling"
