"""The decoding loop: continuous batching over the slots of one engine.

    while there is work:
        admit     waiting prompts into free slots, one context encoding each
        step      one token for every running sequence
        collect   text, stops, lengths; a finished sequence frees its slot

Prompts join and leave at any step. A sequence's tokens depend on its own prompt and parameters
alone: rows are fed in slot order whatever order they arrived in. The last sampled token is not
in the cache until it is fed, so a slot of `seq_len` positions gives seq_len − prompt tokens.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from neuroncompile.runtime.device_sampler import DeviceSampler
from neuroncompile.runtime.engine import Engine
from neuroncompile.runtime.requests import Completion, Event, Request, check_requests
from neuroncompile.runtime.sampler import Sampler
from neuroncompile.runtime.stop import StopMatcher
from neuroncompile.runtime.tokenizer import TextStream, Tokenizer

__all__ = ["Generator"]


class InFlight:
    """One request from submission to its last token."""

    __slots__ = (
        "first",
        "index",
        "limit",
        "request",
        "shown",
        "slot",
        "stops",
        "stream",
        "submitted",
        "tokens",
    )

    def __init__(self, index: int, request: Request, tokenizer: Tokenizer, seq_len: int) -> None:
        self.index, self.request = index, request
        fits = seq_len - len(request.prompt_ids)
        self.limit = min(fits, request.params.max_new_tokens or fits)
        self.stream = TextStream(tokenizer)
        self.stops = StopMatcher(request.params.stop)
        self.tokens: list[int] = []
        self.shown: list[str] = []
        self.slot = -1
        self.submitted = time.perf_counter()
        self.first = 0.0

    @property
    def position(self) -> int:
        """Where the next token will stand in the sequence."""
        return len(self.request.prompt_ids) + len(self.tokens)


class Batch:
    """The sequences of a step in slot order, and what stays the same while none joins or leaves."""

    def __init__(self, rows: list[InFlight], *, samples: bool) -> None:
        self.rows = rows
        self.slots = np.array([s.slot for s in rows], dtype=np.int64)
        params = [s.request.params for s in rows]
        self.sampler = DeviceSampler(params) if samples else Sampler(params)
        self.params = self.sampler.rows if isinstance(self.sampler, DeviceSampler) else None


class Generator:
    """Decodes requests on one engine, one stream at a time.

    Args:
        engine: a loaded program.
        tokenizer: of the same model.
        eos_token_ids: every id that ends a sequence; none is legal, and so is 0.
    """

    def __init__(self, engine: Engine, tokenizer: Tokenizer, eos_token_ids: Iterable[int]) -> None:
        self.engine, self.tokenizer = engine, tokenizer
        self.eos_token_ids = frozenset(eos_token_ids)

    def generate(self, requests: Sequence[Request]) -> list[Completion]:
        """Decode all requests; completions in the order of the requests."""
        done = [event.completion for event in self.stream(requests) if event.completion]
        return sorted(done, key=lambda completion: completion.index)

    def stream(self, requests: Sequence[Request]) -> Iterator[Event]:
        """Decode all requests, giving text as it comes; more requests than slots take turns.

        A stream that is given up leaves nothing behind: the next one overwrites its slots.

        Raises:
            ConfigError, PromptTooLongError: at once, whichever of the prompts cannot be decoded.
        """
        check_requests(self.engine, requests)
        seq_len = self.engine.seq_len
        return self._decode(
            deque(InFlight(i, r, self.tokenizer, seq_len) for i, r in enumerate(requests))
        )

    def _decode(self, waiting: deque[InFlight]) -> Iterator[Event]:
        free = deque(range(self.engine.batch_size))
        running: dict[int, InFlight] = {}
        batch: Batch | None = None
        while waiting or running:
            while waiting and free:
                sequence = waiting.popleft()
                sequence.slot = free.popleft()
                event = self._collect(sequence, self._encode(sequence))
                if event.completion is None:
                    running[sequence.slot] = sequence
                    batch = None
                else:
                    free.append(sequence.slot)
                yield event
            if not running:
                continue
            batch = batch or self._batch([running[slot] for slot in sorted(running)])
            for sequence, token in zip(batch.rows, self._step(batch), strict=True):
                event = self._collect(sequence, token)
                if event.completion is not None:
                    free.append(running.pop(sequence.slot).slot)
                    batch = None
                yield event

    def _batch(self, rows: list[InFlight]) -> Batch:
        return Batch(rows, samples=getattr(self.engine, "samples", False))

    def _encode(self, sequence: InFlight) -> int:
        """Context encoding of one prompt; its first new token."""
        ids = np.array([sequence.request.prompt_ids], dtype=np.int64)
        positions = np.arange(ids.shape[1], dtype=np.int64)[None]
        batch = self._batch([sequence])
        out = self.engine.forward(ids, positions, batch.slots, batch.params)
        return batch.sampler.sample(out, [sequence.position])[0]

    def _step(self, batch: Batch) -> list[int]:
        """Token generation; the next token of each row."""
        ids = np.array([[s.tokens[-1]] for s in batch.rows], dtype=np.int64)
        coming = [s.position for s in batch.rows]
        positions = np.array(coming, dtype=np.int64)[:, None] - 1
        out = self.engine.forward(ids, positions, batch.slots, batch.params)
        return batch.sampler.sample(out, coming)

    def _collect(self, sequence: InFlight, token: int) -> Event:
        """Take up one token: its text, and whether it ends the sequence."""
        sequence.tokens.append(token)
        if len(sequence.tokens) == 1:
            sequence.first = time.perf_counter()
        if token in self.eos_token_ids:
            return self._finish(sequence, "", "stop", token)
        text, stop = sequence.stops.push(sequence.stream.push(token))
        if stop is not None:
            return self._finish(sequence, text, "stop", stop, flush=False)
        if len(sequence.tokens) >= sequence.limit:
            asked = len(sequence.tokens) == sequence.request.params.max_new_tokens
            return self._finish(sequence, text, "length", "max_new_tokens" if asked else "seq_len")
        sequence.shown.append(text)
        return Event(sequence.index, text)

    def _finish(
        self, sequence: InFlight, text: str, reason: str, stop: int | str, *, flush: bool = True
    ) -> Event:
        if flush:
            rest, late = sequence.stops.push(sequence.stream.flush())
            text += rest
            if late is not None:
                reason, stop = "stop", late
            else:
                text += sequence.stops.flush()
        sequence.shown.append(text)
        after = len(sequence.tokens) - 1
        now = time.perf_counter()
        return Event(
            sequence.index,
            text,
            Completion(
                index=sequence.index,
                prompt_tokens=len(sequence.request.prompt_ids),
                tokens=tuple(sequence.tokens),
                text="".join(sequence.shown),
                finish_reason=reason,
                stop_reason=stop,
                ttft_s=sequence.first - sequence.submitted,
                tpot_s=(now - sequence.first) / after if after else None,
            ),
        )
