"""A program ready to decode: built, its weights mapped, its tokenizer read."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from neuroncompile.errors import ConfigError, ModelError
from neuroncompile.models import PinnedModel
from neuroncompile.models.architecture import eos_token_ids
from neuroncompile.output import Output
from neuroncompile.pipeline.build import Built, build_program, preflight
from neuroncompile.pipeline.build_command import announce
from neuroncompile.pipeline.plan import Plan, make_plan
from neuroncompile.pipeline.progress import Transfer
from neuroncompile.pipeline.prompts import Ask
from neuroncompile.pipeline.request import BuildRequest
from neuroncompile.pipeline.sharing import Tiers
from neuroncompile.pipeline.stores import open_store
from neuroncompile.pipeline.weights import weight_files
from neuroncompile.runtime.chat import chat_template, render
from neuroncompile.runtime.device_sampler import check_device_sampling
from neuroncompile.runtime.engine import Engine
from neuroncompile.runtime.generate import Generator
from neuroncompile.runtime.requests import Completion, Event, Request
from neuroncompile.runtime.sampling import Sampling, resolve_sampling
from neuroncompile.runtime.tokenizer import Tokenizer
from neuroncompile.settings import Settings

__all__ = ["PlannedLimits", "Session", "Speech", "open_session", "sampling_of"]


@dataclass(slots=True)
class Session:
    """What `run` and `neuroncompile.load` decode with.

    Attributes:
        settings: what it was opened with.
        built: the program.
        engine: the loaded program.
        speech: the model's tokenizer and chat template.
        lease: keeps the files in use from being collected.
    """

    settings: Settings
    built: Built
    engine: Engine
    speech: Speech
    lease: ExitStack

    @property
    def tokenizer(self) -> Tokenizer:
        """The model's."""
        return self.speech.tokenizer

    def prepare(
        self, asks: Sequence[Ask], command_line: Mapping[str, Any], *, chat: bool
    ) -> tuple[list[Request], list[Sampling]]:
        """Requests for the decoding loop, with the effective sampling of each.

        Raises:
            ConfigError: an illegal value, or one that the program's own sampling cannot honour.
        """
        requests, samplings = self.speech.prepare(asks, command_line, chat=chat)
        on_device = limits_of(self.built.plan).device_sampling
        if on_device is not None:
            check_device_sampling(on_device, samplings)
        return requests, samplings

    def stream(self, requests: Sequence[Request]) -> Iterator[Event]:
        """Decode, giving text as it comes."""
        return self._generator().stream(requests)

    def complete(
        self, asks: Sequence[Ask], command_line: Mapping[str, Any], *, chat: bool
    ) -> list[Completion]:
        """Decode all asks; completions in their order."""
        requests, _ = self.prepare(asks, command_line, chat=chat)
        return self._generator().generate(requests)

    def close(self) -> None:
        """Release the engine, then its files."""
        self.engine.close()
        self.lease.close()

    def _generator(self) -> Generator:
        model = self.built.plan.model
        eos = eos_token_ids(model.config, model.generation_config, self.tokenizer.config)
        named = self.tokenizer.token_id(self.tokenizer.special_tokens.get("eos_token"))
        return Generator(self.engine, self.tokenizer, {*eos, *([] if named is None else [named])})


@dataclass(frozen=True, slots=True)
class Speech:
    """Turns asks into requests; needs the model's files, not its program.

    Attributes:
        model: whose generation_config and templates count.
        tokenizer: the model's.
        template_file: the user's chat template, or None for the model's.
    """

    model: PinnedModel
    tokenizer: Tokenizer
    template_file: Path | None = None

    def prepare(
        self, asks: Sequence[Ask], command_line: Mapping[str, Any], *, chat: bool
    ) -> tuple[list[Request], list[Sampling]]:
        """Requests for the decoding loop, with the effective sampling of each."""
        checkpoint = self.model.generation_config
        samplings = [sampling_of(ask, command_line, checkpoint) for ask in asks]
        requests = [
            Request(
                tuple(self._encode(ask, chat=chat)),
                sampling.params,
                f"line {ask.line}" if ask.line else "",
            )
            for ask, sampling in zip(asks, samplings, strict=True)
        ]
        return requests, samplings

    def _encode(self, ask: Ask, *, chat: bool) -> list[int]:
        messages = ask.messages
        if not messages and chat:
            messages = ({"role": "user", "content": ask.prompt or ""},)
        if not messages:
            return self.tokenizer.encode(ask.prompt or "")
        template = chat_template(self.model.tokenizer_dir, self.template_file)
        text = render(template, messages, self.tokenizer.special_tokens)
        return self.tokenizer.encode(text, add_special_tokens=False)


class PlannedLimits(NamedTuple):
    """What a program will take, known from its plan."""

    seq_len: int
    max_context_length: int
    vocab_size: int
    device_sampling: Mapping[str, Any] | None = None


def limits_of(plan: Plan) -> PlannedLimits:
    """The limits the engine will have: a last bucket below a length is the limit."""
    config = plan.config
    seq_len = min(config["seq_len"], *_buckets(config.get("token_generation_buckets")))
    return PlannedLimits(
        seq_len,
        min(seq_len, *_buckets(config.get("context_encoding_buckets"))),
        plan.spec["model"]["vocab_size"],
        config.get("on_device_sampling_config") if plan.backend == "nxdi" else None,
    )


def _buckets(buckets: Any) -> list[int]:
    """The largest one, where they are plain lengths."""
    lengths = [b for b in buckets or () if isinstance(b, int)]
    return [max(lengths)] if lengths else [1 << 62]


def sampling_of(
    ask: Ask, command_line: Mapping[str, Any], generation_config: Mapping[str, Any]
) -> Sampling:
    """Effective sampling of one ask.

    Raises:
        ConfigError: an illegal value; of a file's ask, the message begins with its line.
    """
    try:
        return resolve_sampling(
            command_line=command_line,
            request=ask.sampling,
            generation_config=generation_config,
        )
    except ConfigError as error:
        if ask.line is None:
            raise
        raise ConfigError(
            f"line {ask.line}: {error}",
            field=error.field,
            value=error.value,
            legal=error.legal,
            hint=error.hint,
        ) from None


def open_session(
    request: BuildRequest,
    settings: Settings,
    output: Output,
    *,
    require_cached: bool = False,
    template_file: Path | None = None,
    before_build: Callable[[Speech, PlannedLimits], None] | None = None,
) -> Session:
    """Build if needed, then load.

    Args:
        before_build: called before anything is compiled; what it raises stops there. This is
            where prompts that cannot be decoded are refused.
    """
    with closing(Tiers(settings, output)) as tiers:
        plan = make_plan(
            request,
            settings,
            progress=Transfer(output),
            before_download=None if require_cached else preflight(request, settings, tiers),
        )
        for warning in plan.warnings:
            output.warn(warning)
        if plan.model.tokenizer_dir is None:
            raise ModelError(
                f"{plan.model.name} has no tokenizer.json",
                hint="put the model's tokenizer files beside its config.json",
            )
        if plan.backend == "nxdi":  # before anything is compiled that could not be run here
            from neuroncompile.pipeline.device import check_device

            check_device(plan.target.platform)
        speech = Speech(plan.model, Tokenizer(plan.model.tokenizer_dir), template_file)
        if before_build is not None:
            before_build(speech, limits_of(plan))
        announce(plan, output)
        built = build_program(plan, settings, output, tiers, require_cached=require_cached)
        weights = weight_files(plan, settings, output, tiers, require_cached=require_cached)
    lease = ExitStack()
    store = open_store(settings)
    try:
        view = lease.enter_context(store.lease(built.artifact))
        if weights.packed is not None:
            lease.enter_context(store.lease(weights.packed))
        if plan.backend == "nxdi":
            from neuroncompile.pipeline.device import open_engine

            engine: Engine = open_engine(plan, view, weights.paths, settings, output, store, lease)
        else:
            from neuroncompile.backends.cpu.backend import CpuBackend

            engine = CpuBackend().load(view, weights.paths)
    except BaseException:
        lease.close()
        raise
    return Session(settings, built, engine, speech, lease)
