"""`run --artifact KEY`: exactly that program, or a refusal that names what contradicts it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from neuroncompile.config import NeuronConfig
from neuroncompile.errors import ConfigError
from neuroncompile.output import Output
from neuroncompile.pipeline.request import BuildRequest, Chosen
from neuroncompile.pipeline.stores import open_store
from neuroncompile.settings import Settings

__all__ = ["check_chosen", "check_config_of", "choose", "config_of", "target_text"]


def choose(request: BuildRequest, text: str, settings: Settings, output: Output) -> BuildRequest:
    """The request, held to the artifact that `text` names.

    Raises:
        ArtifactNotFoundError: the store has none of that name.
        ConfigError: it is no program.
    """
    store = open_store(settings, output)
    artifact = store.find(text)
    if artifact.kind != "compile":
        raise ConfigError(
            f"{artifact.key[:12]} is a {artifact.kind}, not a program",
            field="--artifact",
            value=text,
            legal="the key of a program",
            hint="neuroncompile store ls --kind compile",
        )
    return request._replace(artifact=Chosen(artifact.key, store.spec_of(artifact)))


def config_of(chosen: Chosen) -> dict[str, tuple[str, Any]]:
    """Its neuron config as a layer: in the place of defaults and recipe, below flags.

    Less what follows from the rest, which is derived again: a contradiction is then told as
    the option that was given.
    """
    from neuroncompile.config.derived import derived

    neuron = chosen.spec["neuron"]
    implied = derived(neuron, neuron)
    origin = f"artifact {chosen.key[:12]}"
    return {name: (origin, value) for name, value in neuron.items() if name not in implied}


def target_text(chosen: Chosen) -> str:
    """What it was compiled for, as `--target` would have it."""
    target = chosen.spec["target"]
    return f"cpu:{target['isa']}" if target["platform"] == "cpu" else str(target["platform"])


def check_config_of(chosen: Chosen, config: NeuronConfig) -> None:
    """`check_chosen` for the config alone, before its combinations are looked at.

    Two values that do not go together are no use to hear of when one of them is the artifact's.

    Raises:
        ConfigError: as `check_chosen`.
    """
    from neuroncompile.keys.exclusions import NEURON_EXCLUSIONS, without

    neuron = without(config.plain(), NEURON_EXCLUSIONS, nested=True)
    if neuron != chosen.spec["neuron"]:
        check_chosen(chosen, {**chosen.spec, "neuron": neuron}, "")


def check_chosen(chosen: Chosen, spec: Mapping[str, Any], key: str) -> None:
    """Refuse a program that is another than the chosen one.

    Raises:
        ConfigError: naming each field with both values.
    """
    if key == chosen.key:
        return
    from neuroncompile.pipeline.changes import changes, in_words

    told = changes(chosen.spec, spec)
    raise ConfigError(
        f"artifact {chosen.key[:12]} was fixed at build, and another program is asked for: "
        f"{in_words(told)}",
        field=told[0].path,
        value=told[0].right,
        legal=told[0].left,
        hint="leave the option out, or leave --artifact out to build what is asked for",
        details={"differences": [change.document() for change in told]},
    )
