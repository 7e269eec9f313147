"""`run` as a command: prompts in, text out."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from neuroncompile.errors import InterruptedBuildError, UsageError
from neuroncompile.output import Output
from neuroncompile.pipeline.prompts import Ask, read_asks
from neuroncompile.pipeline.request import BuildRequest
from neuroncompile.pipeline.session import (
    PlannedLimits,
    Session,
    Speech,
    open_session,
    sampling_of,
)
from neuroncompile.runtime.chat import chat_template
from neuroncompile.runtime.device_sampler import check_device_sampling
from neuroncompile.runtime.requests import Completion, check_requests
from neuroncompile.runtime.sampling import Sampling
from neuroncompile.settings import Settings

__all__ = ["RunRequest", "run_command"]


@dataclass(frozen=True, slots=True)
class RunRequest:
    """What `run` was asked for.

    Attributes:
        build: the program.
        prompt: text, "-" for stdin, None for stdin or, on a terminal, an interactive session.
        prompts_file: JSON Lines file with many prompts.
        chat: apply the chat template.
        system: system message of a chat.
        chat_template: template file of the user's.
        sampling: command-line values; None where not given.
        require_cached: never compile or pack.
        artifact: key of the only program that will do, as typed.
    """

    build: BuildRequest
    prompt: str | None = None
    prompts_file: str | None = None
    chat: bool = False
    system: str | None = None
    chat_template: str | None = None
    sampling: Mapping[str, Any] = field(default_factory=dict)
    require_cached: bool = False
    artifact: str | None = None


def run_command(request: RunRequest, settings: Settings, output: Output) -> int:
    """Run `neuroncompile run` and return its exit code."""
    asks = _asks(request)
    if asks is None and output.json_mode:
        raise UsageError("--json needs a prompt", hint="give PROMPT, or pipe it to stdin")
    for ask in asks or [Ask()]:
        sampling_of(ask, request.sampling, {})  # an illegal value is said before anything else

    def check(speech: Speech, limits: PlannedLimits) -> None:
        """Templates, lengths and what the device cannot sample are said before a compile."""
        if asks is not None:
            prepared, samplings = speech.prepare(asks, request.sampling, chat=request.chat)
            check_requests(limits, prepared)
        else:
            samplings = [sampling_of(Ask(), request.sampling, speech.model.generation_config)]
            if request.chat:
                chat_template(speech.model.tokenizer_dir, speech.template_file)
        if limits.device_sampling is not None:
            check_device_sampling(limits.device_sampling, samplings)

    build = request.build
    if request.artifact is not None:
        from neuroncompile.pipeline.artifact import choose

        build = choose(build, request.artifact, settings, output)
    session = open_session(
        build,
        settings,
        output,
        require_cached=request.require_cached,
        template_file=Path(request.chat_template) if request.chat_template else None,
        before_build=check,
    )
    try:
        if asks is None:
            from neuroncompile.pipeline.interactive import converse

            return converse(
                session, request.sampling, output, chat=request.chat, system=request.system
            )
        return _answer(session, asks, request, output)
    finally:
        session.close()


def _asks(request: RunRequest) -> list[Ask] | None:
    """The prompts, or None for an interactive session."""
    for option, value in (("--system", request.system), ("--chat-template", request.chat_template)):
        if value is not None and not request.chat:
            raise UsageError(f"{option} is for --chat", hint="add --chat")
    if request.prompts_file is not None:
        if request.prompt is not None:
            raise UsageError("PROMPT and --prompts exclude each other", hint="leave one out")
        return [_with_system(ask, request) for ask in read_asks(request.prompts_file)]
    prompt = request.prompt
    if prompt is None and sys.stdin.isatty():
        return None
    if prompt is None or prompt == "-":
        prompt = sys.stdin.read().removesuffix("\n")
        if not prompt:
            raise UsageError("stdin holds no prompt", hint="give PROMPT, or pipe it to stdin")
    return [_with_system(Ask(prompt), request)]


def _with_system(ask: Ask, request: RunRequest) -> Ask:
    if request.system is None:
        return ask
    messages = ask.messages or ({"role": "user", "content": ask.prompt or ""},)
    system = {"role": "system", "content": request.system}
    return Ask(None, (system, *messages), ask.sampling, ask.line)


def _answer(session: Session, asks: Sequence[Ask], request: RunRequest, output: Output) -> int:
    requests, samplings = session.prepare(asks, request.sampling, chat=request.chat)
    _notice(session, samplings[0], output)
    single = request.prompts_file is None
    done: dict[int, Completion] = {}
    following = 0
    try:
        for event in session.stream(requests):
            if single:
                output.stream(event.text)
            if event.completion is not None:
                done[event.index] = event.completion
            while not single and following in done:
                output.line(json.dumps(_completion(done[following]), ensure_ascii=False))
                following += 1
            if output.closed:
                return 0  # nobody reads any more
    except KeyboardInterrupt:
        raise InterruptedBuildError(
            f"interrupted after {len(done)} of {len(requests)} answers; the program is kept",
            hint="the same command answers again without compiling",
            details={"completions": [_completion(done[index]) for index in sorted(done)]},
        ) from None
    if single:
        output.stream("\n")
    completions = [done[index] for index in range(len(requests))]
    _summary(session, completions, output)
    output.result(_result(session, samplings, completions))
    return 0


def _notice(session: Session, sampling: Sampling, output: Output) -> None:
    shown = ", ".join(
        f"{name} {row['value']} ({row['origin']})"
        for name, row in sampling.rows().items()
        if name in ("temperature", "top_k", "top_p", "seed")
        and not (sampling.params.greedy and name != "temperature")
    )
    how = "greedy" if sampling.params.greedy else shown
    output.note(
        f"decoding on {session.engine.name}, {how}", level=1 if sampling.params.greedy else 0
    )
    for notice in sampling.notices:
        output.note(notice)


def _summary(session: Session, completions: Sequence[Completion], output: Output) -> None:
    for completion in completions:
        if completion.finish_reason == "length" and completion.stop_reason == "seq_len":
            which = f"answer {completion.index + 1} " if len(completions) > 1 else "the answer "
            output.warn(
                f"{which}was cut at the compiled length of {session.engine.seq_len} tokens; "
                "build with a larger --seq-len for more"
            )
    tokens = sum(len(c.tokens) for c in completions)
    first = min(c.ttft_s for c in completions)
    rates = [1 / c.tpot_s for c in completions if c.tpot_s]
    rate = f", {sum(rates) / len(rates):.0f} tokens/s each" if rates else ""
    output.note(f"{tokens} tokens, first after {first * 1000:.0f} ms{rate}", level=1)


def _completion(completion: Completion) -> dict[str, Any]:
    row = asdict(completion)
    row["tokens"] = list(completion.tokens)
    return row


def _result(
    session: Session, samplings: Sequence[Sampling], completions: Sequence[Completion]
) -> dict[str, Any]:
    plan = session.built.plan
    return {
        "key": plan.key,
        "backend": plan.backend,
        "target": plan.target.spec(),
        "model": plan.model.name,
        "hit": session.built.hit,
        "source": session.built.source,
        "tier": session.built.tier,
        "compiled": list(session.built.compiled),
        "sampler": "device" if getattr(session.engine, "samples", False) else "host",
        "completions": [
            {**_completion(completion), "sampling": sampling.rows()}
            for completion, sampling in zip(completions, samplings, strict=True)
        ],
    }
