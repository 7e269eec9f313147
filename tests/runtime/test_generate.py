"""Continuous batching: any order, any mixture, the same answers."""

from __future__ import annotations

import random

import pytest

from neuroncompile.errors import ConfigError, PromptTooLongError
from neuroncompile.runtime.generate import Generator
from neuroncompile.runtime.requests import Completion, Request
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
    stream.close()
    assert [key(c) for c in generator.generate(requests(5))] == [
        alone(tokenizer, r) for r in requests(5)
    ]
