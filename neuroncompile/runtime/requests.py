"""What goes into the decoding loop and what comes out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from neuroncompile.errors import ConfigError, PromptTooLongError
from neuroncompile.runtime.engine import Limits
from neuroncompile.runtime.sampling import SamplingParams

__all__ = ["Completion", "Event", "Request", "check_requests"]


@dataclass(frozen=True, slots=True)
class Request:
    """One prompt.

    Attributes:
        prompt_ids: token ids, at least one.
        params: how to decode it.
        label: how errors call it ("asks.jsonl, line 3"); "" for the only one.
    """

    prompt_ids: tuple[int, ...]
    params: SamplingParams = field(default_factory=SamplingParams)
    label: str = ""


@dataclass(frozen=True, slots=True)
class Completion:
    """One answer.

    Attributes:
        index: place of its request among those given.
        prompt_tokens: tokens of the prompt.
        tokens: ids of the answer, an end-of-sequence id included.
        text: without special tokens, cut before a stop string.
        finish_reason: "stop" (end of sequence or stop string) or "length".
        stop_reason: the end-of-sequence id or stop string; for "length", which limit:
            "max_new_tokens" or "seq_len".
        ttft_s: seconds from submission to the first token.
        tpot_s: mean seconds per token after the first; None for a single token.
    """

    index: int
    prompt_tokens: int
    tokens: tuple[int, ...]
    text: str
    finish_reason: str
    stop_reason: int | str
    ttft_s: float
    tpot_s: float | None


@dataclass(frozen=True, slots=True)
class Event:
    """A piece of one answer as it is decoded; `completion` comes with the last one."""

    index: int
    text: str
    completion: Completion | None = None


def check_requests(engine: Limits, requests: Sequence[Request]) -> None:
    """Refuse before the first step what cannot be decoded.

    Raises:
        PromptTooLongError: more prompt tokens than were compiled for, with both numbers.
        ConfigError: a prompt without tokens, or with ids that the program does not know.
    """
    for request in requests:
        where = f"{request.label}: " if request.label else ""
        if not request.prompt_ids:
            raise ConfigError(
                f"{where}the prompt has no tokens",
                field="prompt",
                value="",
                legal="at least one token",
                hint="give a prompt of at least one token",
            )
        _check_length(engine, len(request.prompt_ids), where)
        for token in (min(request.prompt_ids), max(request.prompt_ids)):
            if not 0 <= token < engine.vocab_size:
                raise ConfigError(
                    f"{where}token id {token} is outside the program's vocabulary",
                    field="prompt",
                    value=token,
                    legal=f"0 to {engine.vocab_size - 1}",
                    hint="the tokenizer belongs to another model",
                )


def _check_length(engine: Limits, count: int, where: str) -> None:
    room = engine.seq_len - 1  # one position at least for the answer
    longest = min(engine.max_context_length, room)
    if count > longest:
        flag = "--seq-len above" if count > room else "--max-context-length of at least"
        raise PromptTooLongError(
            f"{where}the prompt has {count} tokens; this program takes at most {longest} "
            f"(max_context_length {engine.max_context_length}, seq_len {engine.seq_len})",
            hint=f"shorten it, or build with {flag} {count}",
            details={"prompt_tokens": count, "limit": longest},
        )
