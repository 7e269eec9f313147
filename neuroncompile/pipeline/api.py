"""`neuroncompile.build` and `neuroncompile.load`: the command line's pipeline, from Python."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any

from neuroncompile.errors import ConfigError, UsageError
from neuroncompile.output import Output
from neuroncompile.pipeline.build import Built
from neuroncompile.pipeline.build_command import obtain
from neuroncompile.pipeline.request import BuildRequest
from neuroncompile.pipeline.session import Session, open_session
from neuroncompile.runtime.requests import Completion
from neuroncompile.settings import Settings, load_settings

__all__ = ["LoadedModel", "build", "load"]


def build(
    model: str,
    *,
    target: str | None = None,
    config: Mapping[str, Any] | None = None,
    optlevel: str | None = None,
    revision: str | None = None,
    toolchain: str | None = None,
    overrides: Mapping[str, Any] | Sequence[Mapping[str, Any]] = (),
    draft: str | None = None,
    adapters: Mapping[str, str] | None = None,
    model_class: str | None = None,
    locked: bool = False,
    store: str | None = None,
    offline: bool = False,
    jobs: int | None = None,
    require_cached: bool = False,
    tiers: Sequence[str] = (),
    push: bool = False,
    verbose: bool = False,
) -> Built:
    """Compile `model`, or find it compiled.

    Args:
        model: as on the command line: a path, `pypi:…`, a recipe or `org/name[@revision]`.
        target: "cpu", "cpu:x86-64-v3", …; default the recipe's, else "cpu".
        config: NxDI keywords, e.g. `{"seq_len": 2048, "batch_size": 4}`.
        optlevel: "1" or "2" on cpu.
        overrides: a table like that of `--override-neuron-config`, or several of which the last
            wins: laid over `config`, nested tables merged, vLLM's older names understood.
        draft: reference of a draft model for speculation, or "self" (Neuron targets).
        adapters: LoRA adapter's name → reference, to make room for (Neuron targets).
        model_class: your own NxDI class, "./file.py:Class" or "module:Class" (Neuron targets).
        locked: refuse what leads to another key than neuroncompile.lock has.
        store: directory of the store; default as `neuroncompile` itself resolves it.
        require_cached: never compile; raise `CacheMissError` instead.
        tiers: URLs of tiers to look in, nearest first.
        push: bring the result into every tier.
        verbose: progress on stderr.

    Returns:
        The program, with `key`, `view` (directory), `hit` and what was compiled.

    Raises:
        neuroncompile.errors.NeuronCompileError: see `neuroncompile.errors` for the tree.
    """
    request = BuildRequest(
        model=model,
        target=target,
        flags=_flags(config),
        overrides=_overrides(overrides),
        optlevel=optlevel,
        revision=revision,
        toolchain=toolchain,
        draft=draft,
        adapters=_adapters(adapters),
        model_class=model_class,
        locked=locked,
    )
    settings = load_settings(
        store=store, offline=offline, jobs=jobs, toolchain=toolchain, tiers=tiers
    )
    output = Output(quiet=not verbose)
    return obtain(request, settings, output, require_cached=require_cached, push=push)


def load(
    model: str,
    *,
    target: str | None = None,
    config: Mapping[str, Any] | None = None,
    optlevel: str | None = None,
    revision: str | None = None,
    toolchain: str | None = None,
    overrides: Mapping[str, Any] | Sequence[Mapping[str, Any]] = (),
    draft: str | None = None,
    adapters: Mapping[str, str] | None = None,
    model_class: str | None = None,
    locked: bool = False,
    store: str | None = None,
    offline: bool = False,
    jobs: int | None = None,
    require_cached: bool = False,
    tiers: Sequence[str] = (),
    verbose: bool = False,
) -> LoadedModel:
    """Build if needed, map the weights and return a model ready to decode.

    Takes what `build` takes, except `push`. Use the result as a context manager, or call `close`.
    """
    request = BuildRequest(
        model=model,
        target=target,
        flags=_flags(config),
        overrides=_overrides(overrides),
        optlevel=optlevel,
        revision=revision,
        toolchain=toolchain,
        draft=draft,
        adapters=_adapters(adapters),
        model_class=model_class,
        locked=locked,
    )
    settings = load_settings(
        store=store, offline=offline, jobs=jobs, toolchain=toolchain, tiers=tiers
    )
    output = Output(quiet=not verbose)
    session = open_session(request, settings, output, require_cached=require_cached)
    return LoadedModel(session)


class LoadedModel:
    """A program with its weights and tokenizer; made by `load`."""

    def __init__(self, session: Session) -> None:
        self._session = session

    @property
    def key(self) -> str:
        """The program's key."""
        return self._session.built.plan.key

    @property
    def settings(self) -> Settings:
        """What it was loaded with."""
        return self._session.settings

    def generate(
        self,
        prompts: str | Sequence[str] | Sequence[Mapping[str, str]],
        *,
        chat: bool = False,
        temperature: float | None = None,
        top_k: int | None = None,
        top_p: float | None = None,
        seed: int | None = None,
        max_new_tokens: int | None = None,
        stop: Sequence[str] = (),
    ) -> list[Completion]:
        """Decode one or more prompts; completions come back in the order of the prompts.

        Args:
            prompts: a text, several texts, or one chat as a list of
                `{"role": …, "content": …}` messages.
            chat: wrap each text as a user message in the model's chat template.
            temperature: 0 is greedy, which is also the default.
            top_k, top_p, seed, max_new_tokens, stop: as on the command line.
        """
        from neuroncompile.pipeline.prompts import Ask

        if isinstance(prompts, str):
            asks = [Ask(prompt=prompts)]
        elif prompts and all(isinstance(p, Mapping) for p in prompts):
            asks = [Ask(messages=tuple(dict(m) for m in prompts if isinstance(m, Mapping)))]
        elif prompts and all(isinstance(p, str) for p in prompts):
            asks = [Ask(prompt=str(p)) for p in prompts]
        else:
            raise UsageError("prompts is a text, several texts, or one list of chat messages")
        sampling = {
            "temperature": temperature,
            "top_k": top_k,
            "top_p": top_p,
            "seed": seed,
            "max_new_tokens": max_new_tokens,
            "stop": tuple(stop) or None,
        }
        return self._session.complete(asks, sampling, chat=chat)

    def close(self) -> None:
        """Release the engine's memory; a closed model does not decode."""
        self._session.close()

    def __enter__(self) -> LoadedModel:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def _flags(config: Mapping[str, Any] | None) -> dict[str, tuple[str, Any]]:
    return {name: (f"config {name}", value) for name, value in (config or {}).items()}


def _overrides(tables: Mapping[str, Any] | Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    """As `--override-neuron-config` takes them, so that both are read by the same code."""
    several: Any = [tables] if isinstance(tables, Mapping) else tables
    if not isinstance(several, (list, tuple)) or not all(isinstance(t, Mapping) for t in several):
        raise ConfigError(
            f"overrides is {tables!r}; it must be a table of NxDI keywords, or several",
            field="overrides",
            value=repr(tables),
            legal="a mapping, or a list of mappings",
            hint='for example overrides={"on_device_sampling_config": {"top_k": 1}}',
        )
    try:
        return tuple(json.dumps(dict(table)) for table in several)
    except (TypeError, ValueError) as error:
        raise ConfigError(
            f"overrides holds a value that JSON has not: {error}",
            field="overrides",
            value=repr(tables),
            legal="text, numbers, booleans, None, lists and tables",
            hint='a dtype is its name, for example "bfloat16"',
        ) from None


def _adapters(adapters: Mapping[str, str] | None) -> tuple[str, ...]:
    """As `--adapter` takes them: NAME=REF."""
    if adapters is not None and not isinstance(adapters, Mapping):
        raise _bad_adapters(adapters)
    for name, reference in (adapters or {}).items():
        if not (isinstance(name, str) and isinstance(reference, str)) or "=" in name:
            raise _bad_adapters({name: reference})
    return tuple(f"{name}={reference}" for name, reference in (adapters or {}).items())


def _bad_adapters(value: Any) -> ConfigError:
    return ConfigError(
        f"adapters holds {value!r}, which is no name with a reference",
        field="adapters",
        value=repr(value),
        legal="a table of names without '=' to references",
        hint='for example adapters={"german": "org/adapter@main"}',
    )
