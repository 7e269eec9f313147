"""Continuous batching: any order, any mixture, the same answers."""

from __future__ import annotations

import random
import time
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from neuroncompile.errors import ConfigError, PromptTooLongError
from neuroncompile.runtime.generate import Generator
from neuroncompile.runtime.requests import Completion, Request
from neuroncompile.runtime.sampler import Sampler
from neuroncompile.runtime.sampling import SamplingParams
from neuroncompile.runtime.tokenizer import Tokenizer
from tests.runtime.conftest import VOCAB, HistoryEngine

EOS = {1, 17, 23}


def prompt(seed: int, length: int) -> tuple[int, ...]:
    return tuple(random.Random(seed).randrange(2, 300) for _ in range(length))


def requests(count: int) -> list[Request]:
    made = []
    for i in range(count):
        temperature = 0.0 if i % 3 else 0.9
        params = SamplingParams(temperature=temperature, seed=i, max_new_tokens=1 + (i * 7) % 23)
        made.append(Request(prompt(i, 1 + (i * 5) % 31), params))
    return made


def key(completion: Completion) -> tuple[object, ...]:
    return (completion.tokens, completion.text, completion.finish_reason, completion.stop_reason)


def alone(tokenizer: Tokenizer, request: Request) -> tuple[object, ...]:
    return key(Generator(HistoryEngine(1), tokenizer, EOS).generate([request])[0])


@pytest.mark.parametrize("batch_size", [1, 2, 4])
@pytest.mark.parametrize("order", [0, 1, 2])
def test_batched_equals_alone_in_any_order(
    tokenizer: Tokenizer, batch_size: int, order: int
) -> None:
    asked = requests(11)
    random.Random(order).shuffle(asked)
    engine = HistoryEngine(batch_size)
    done = Generator(engine, tokenizer, EOS).generate(asked)
    assert [c.index for c in done] == list(range(len(asked)))
    assert [key(c) for c in done] == [alone(tokenizer, r) for r in asked]
    assert max(rows for kind, rows in engine.calls if kind == "token") == batch_size
    assert all(rows == 1 for kind, rows in engine.calls if kind == "context")


def test_streamed_pieces_are_the_text(tokenizer: Tokenizer) -> None:
    pieces: dict[int, str] = {}
    final: dict[int, Completion] = {}
    for event in Generator(HistoryEngine(3), tokenizer, EOS).stream(requests(7)):
        assert event.index not in final, "nothing comes after the end"
        pieces[event.index] = pieces.get(event.index, "") + event.text
        if event.completion:
            final[event.index] = event.completion
    assert pieces == {i: c.text for i, c in final.items()}


def test_the_compiled_length_is_never_passed(tokenizer: Tokenizer) -> None:
    engine = HistoryEngine(1, seq_len=40, max_context_length=40)
    done = Generator(engine, tokenizer, ()).generate(
        [Request(prompt(1, 32), SamplingParams(max_new_tokens=64))]
    )[0]
    assert (len(done.tokens), done.finish_reason, done.stop_reason) == (8, "length", "seq_len")
    assert max(engine.slots[0]) == 38, "the last token is answered, not fed"


def test_max_new_tokens(tokenizer: Tokenizer) -> None:
    request = Request(prompt(1, 3), SamplingParams(max_new_tokens=1))
    done = Generator(HistoryEngine(1), tokenizer, ()).generate([request])[0]
    assert (len(done.tokens), done.stop_reason, done.tpot_s) == (1, "max_new_tokens", None)


@pytest.mark.parametrize(
    ("count", "message"), [(33, "33 tokens; this program takes at most 32"), (0, "no tokens")]
)
def test_what_cannot_fit_is_refused_before_the_first_step(
    tokenizer: Tokenizer, count: int, message: str
) -> None:
    engine = HistoryEngine(2)
    asked = [Request(prompt(0, 3)), Request(prompt(1, count), label="line 2")]
    with pytest.raises((PromptTooLongError, ConfigError), match=f"line 2: .*{message}"):
        Generator(engine, tokenizer, EOS).stream(asked)
    assert engine.calls == []


def test_which_length_to_build_with(tokenizer: Tokenizer) -> None:
    generator = Generator(HistoryEngine(1, seq_len=64, max_context_length=32), tokenizer, EOS)
    for count, flag in ((33, "--max-context-length of at least 33"), (64, "--seq-len above 64")):
        with pytest.raises(PromptTooLongError) as caught:
            generator.stream([Request(prompt(1, count))])
        assert flag in (caught.value.hint or "")
        assert caught.value.details == {"prompt_tokens": count, "limit": 32}


@pytest.mark.parametrize("token", [-1, VOCAB])
def test_ids_of_another_tokenizer_are_refused(tokenizer: Tokenizer, token: int) -> None:
    with pytest.raises(ConfigError, match=f"token id {token} is outside"):
        Generator(HistoryEngine(1), tokenizer, EOS).stream([Request((5, token, 6))])


def test_a_wish_that_was_met_is_not_a_cut(tokenizer: Tokenizer) -> None:
    request = Request(prompt(1, 32), SamplingParams(max_new_tokens=8))
    engine = HistoryEngine(1, seq_len=40, max_context_length=40)
    done = Generator(engine, tokenizer, ()).generate([request])[0]
    assert (len(done.tokens), done.stop_reason) == (8, "max_new_tokens")


@pytest.mark.parametrize("count", [31, 32])
def test_a_prompt_that_leaves_no_room_for_an_answer(tokenizer: Tokenizer, count: int) -> None:
    engine = HistoryEngine(1, seq_len=32, max_context_length=32)
    generator = Generator(engine, tokenizer, ())
    if count == 32:
        with pytest.raises(PromptTooLongError, match="32 tokens; this program takes at most 31"):
            generator.generate([Request(prompt(1, count))])
    else:
        assert len(generator.generate([Request(prompt(1, count))])[0].tokens) == 1


def test_every_end_of_sequence_id_counts_zero_included(tokenizer: Tokenizer) -> None:
    request = Request(prompt(3, 4), SamplingParams(max_new_tokens=20))
    free = Generator(HistoryEngine(1), tokenizer, ()).generate([request])[0].tokens
    for at, token in enumerate(free):
        if token in free[:at]:
            continue
        done = Generator(HistoryEngine(1), tokenizer, {token, 299}).generate([request])[0]
        assert done.tokens == free[: at + 1]
        assert (done.finish_reason, done.stop_reason) == ("stop", token)
        assert done.text == tokenizer.decode(free[:at]).rstrip("\ufffd")


def test_stop_strings_end_the_text_and_do_not_show(tokenizer: Tokenizer) -> None:
    request = Request(prompt(5, 4), SamplingParams(max_new_tokens=30))
    full = Generator(HistoryEngine(1), tokenizer, ()).generate([request])[0].text
    stop = full[5:8]
    stopped = Request(request.prompt_ids, SamplingParams(max_new_tokens=30, stop=(stop,)))
    done = Generator(HistoryEngine(1), tokenizer, ()).generate([stopped])[0]
    assert (done.finish_reason, done.stop_reason) == ("stop", stop)
    assert done.text == full[: full.index(stop)]


def test_abandoned_streams_leave_the_engine_usable(tokenizer: Tokenizer) -> None:
    generator = Generator(HistoryEngine(2), tokenizer, EOS)
    stream = generator.stream(requests(5))
    next(stream)
    del stream
    assert [key(c) for c in generator.generate(requests(5))] == [
        alone(tokenizer, r) for r in requests(5)
    ]


@settings(
    deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    batch_size=st.integers(1, 5),
    shapes=st.lists(
        st.tuples(
            st.integers(0, 5),  # which prompt: equal ones must not be confused either
            st.integers(1, 12),  # its length
            st.integers(1, 9) | st.none(),
            st.sampled_from([0.0, 0.7]),
            st.integers(0, 2),
        ),
        max_size=9,
    ),
)
def test_any_workload_is_as_one_by_one(
    tokenizer: Tokenizer, batch_size: int, shapes: list[tuple[int, int, int | None, float, int]]
) -> None:
    """Joins and leaves fall at every step; slots are used again and again."""
    asked = [
        Request(prompt(which, length), SamplingParams(heat, seed=seed, max_new_tokens=most))
        for which, length, most, heat, seed in shapes
    ]
    done = Generator(HistoryEngine(batch_size, 20, 12), tokenizer, EOS).generate(asked)
    single = [Generator(HistoryEngine(1, 20, 12), tokenizer, EOS).generate([r])[0] for r in asked]
    assert [key(c) for c in done] == [key(c) for c in single]
    for request, completion in zip(asked, done, strict=True):
        room = 20 - len(request.prompt_ids)
        assert len(completion.tokens) <= min(room, request.params.max_new_tokens or room)
        if completion.finish_reason == "length":
            assert len(completion.tokens) == min(room, request.params.max_new_tokens or room)


def test_a_waiting_prompt_joins_as_soon_as_a_slot_is_free(tokenizer: Tokenizer) -> None:
    engine = HistoryEngine(2)
    lengths = (2, 9, 3)
    asked = [Request(prompt(i, 4), SamplingParams(max_new_tokens=n)) for i, n in enumerate(lengths)]
    events = list(Generator(engine, tokenizer, ()).stream(asked))
    assert [c[0] for c in engine.calls[:5]] == ["context", "context", "token", "context", "token"]
    assert [e.completion.index for e in events if e.completion] == [0, 2, 1]
    assert sum(rows for kind, rows in engine.calls if kind == "token") == sum(lengths) - 3


def test_greedy_rows_of_a_mixed_batch_stay_greedy(tokenizer: Tokenizer) -> None:
    greedy = Request(prompt(1, 5), SamplingParams(top_k=50, top_p=0.5, max_new_tokens=12))
    hot = Request(prompt(2, 5), SamplingParams(temperature=5.0, seed=1, max_new_tokens=6))
    mixed = Generator(HistoryEngine(2), tokenizer, ()).generate([hot, greedy])[1]
    plain = Request(greedy.prompt_ids, SamplingParams(max_new_tokens=12))
    assert mixed.tokens == Generator(HistoryEngine(1), tokenizer, ()).generate([plain])[0].tokens


def test_a_token_is_drawn_by_seed_and_its_own_position(tokenizer: Tokenizer) -> None:
    request = Request(prompt(4, 7), SamplingParams(1.0, seed=11, max_new_tokens=6))
    done = Generator(HistoryEngine(2), tokenizer, ()).generate([request])[0]
    engine, sampler = HistoryEngine(1), Sampler([request.params])
    slot = np.zeros(1, dtype=np.int64)
    fed, at = np.array([request.prompt_ids]), np.arange(7)[None]
    by_hand = []
    for position in range(7, 13):
        by_hand += sampler.sample(engine.forward(fed, at, slot), [position])
        fed, at = np.array([by_hand[-1:]]), np.array([[position]])
    assert list(done.tokens) == by_hand


def test_seeds_differ_and_repeat(tokenizer: Tokenizer) -> None:
    def decode(seed: int) -> tuple[int, ...]:
        request = Request(prompt(1, 5), SamplingParams(1.0, seed=seed, max_new_tokens=12))
        return Generator(HistoryEngine(1), tokenizer, ()).generate([request])[0].tokens

    assert len({decode(seed) for seed in range(8)}) == 8
    assert decode(3) == decode(3)


class Scripted:
    """Greedy decoding answers with the given tokens, whatever the prompt."""

    name = "scripted"
    batch_size, seq_len, max_context_length, vocab_size = 1, 4096, 64, VOCAB

    def __init__(self, tokens: list[int]) -> None:
        self.tokens, self.prompt = tokens, 0

    def forward(
        self,
        input_ids: NDArray[np.int64],
        position_ids: NDArray[np.int64],
        seq_ids: NDArray[np.int64],
        sampling_params: Any = None,
    ) -> NDArray[np.float32]:
        if position_ids[0, 0] == 0:
            self.prompt = input_ids.shape[1]
        logits = np.zeros((1, VOCAB), dtype=np.float32)
        logits[0, self.tokens[position_ids[0, -1] + 1 - self.prompt]] = 1
        return logits

    def close(self) -> None:
        pass


def answer(tokenizer: Tokenizer, text: str, stop: tuple[str, ...] = ()) -> tuple[str, Completion]:
    ids = [*tokenizer.encode(text, add_special_tokens=False), 1]
    request = Request((5,), SamplingParams(stop=stop))
    events = list(Generator(Scripted(ids), tokenizer, {1}).stream([request]))
    assert events[-1].completion is not None
    return "".join(e.text for e in events), events[-1].completion


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    text=st.text("ab \né漢🎉", max_size=20),
    stop=st.lists(st.text("ab \né漢🎉", min_size=1, max_size=4), max_size=3),
)
def test_what_is_shown_is_the_text_up_to_its_first_stop(
    tokenizer: Tokenizer, text: str, stop: list[str]
) -> None:
    shown, completion = answer(tokenizer, text, tuple(stop))
    ends = [(text.index(s) + len(s), text.index(s), s) for s in stop if s in text]
    if ends:
        _, at, met = min(ends)
        assert (shown, completion.stop_reason) == (text[:at], met)
    else:
        assert (shown, completion.stop_reason) == (text, 1)
        assert completion.tokens[-1] == 1
    assert completion.text == shown
    assert completion.finish_reason == "stop"


def test_times_are_counted_from_submission(tokenizer: Tokenizer) -> None:
    asked = [Request(prompt(i, 4), SamplingParams(max_new_tokens=5)) for i in range(3)]
    stream = Generator(HistoryEngine(1), tokenizer, ()).stream(asked)
    time.sleep(0.05)
    done = [e.completion for e in stream if e.completion]
    assert done[0].ttft_s >= 0.05
    assert [c.ttft_s for c in done] == sorted(c.ttft_s for c in done), "waiting counts"
    assert all(c.tpot_s is not None and c.tpot_s < 0.05 for c in done), "the first token does not"
