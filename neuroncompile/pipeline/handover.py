"""Programs handed to NxD Inference and vLLM: `export --for` and `env --for`.

nxdi          a directory that NxD Inference loads
vllm:VERSION  below 0.21 the same directory, through NEURON_COMPILED_ARTIFACTS; from 0.21 on
              the plugin has a compile cache of its own, whose keys only its tracer knows
"""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any, NamedTuple

from neuroncompile.config.serving import serving_of
from neuroncompile.config.vllm_plugins import check_family, check_plugin, is_first, is_fork
from neuroncompile.errors import ConfigError, UsageError
from neuroncompile.output import Output
from neuroncompile.pipeline.exported import check_exported
from neuroncompile.pipeline.stores import open_store
from neuroncompile.settings import Settings
from neuroncompile.store import Artifact, Store

__all__ = ["Consumer", "check_consumer", "consumer_of", "env_command", "program_of"]

OWN_CACHE = (0, 21)  # vllm-neuron: the first release without NxD Inference
_NO_CLASS = "vLLM takes classes from NxD Inference's registry alone"


class Consumer(NamedTuple):
    """Who is handed a program: "nxdi" or "vllm", and vLLM's version as typed."""

    name: str
    version: str = ""

    @property
    def text(self) -> str:
        """As typed."""
        return f"{self.name}:{self.version}" if self.version else self.name


def consumer_of(text: str) -> Consumer:
    """Read `--for`.

    Raises:
        UsageError: neither nxdi nor vllm:VERSION.
        ConfigError: a vLLM with a compile cache of its own, or one older than the plugin.
    """
    name, colon, version = text.partition(":")
    numbers = version.split(".")[:2]
    if name == "nxdi" and not colon:
        return Consumer("nxdi")
    if name != "vllm" or len(numbers) < 2 or not all(n.isdigit() for n in numbers):
        raise UsageError(
            f"--for {text!r} names nobody",
            hint="--for nxdi, or vllm with its version: --for vllm:0.11",
        )
    if tuple(map(int, numbers)) >= OWN_CACHE:
        raise ConfigError(
            f"vllm {version} takes no directory of NxD Inference's: its plugin compiles graphs "
            "itself and keeps them in $VLLM_CACHE_ROOT/neuron/compile_cache, under keys that only "
            "its own tracer computes; NEURON_COMPILED_ARTIFACTS is not read",
            field="--for",
            value=text,
            legal=["nxdi", "vllm below 0.21"],
            hint="compile with the plugin (VLLM_NEURON_CPU_COMPILE=1) and carry its cache, or "
            "serve this program with vllm below 0.21",
        )
    if is_fork(version):
        raise ConfigError(
            f"vllm {version} on Neuron is a fork, whose options are not the plugin's",
            field="--for",
            value=text,
            legal=["nxdi", "vllm 0.10 to 0.20, or the plugin's own number"],
            hint="export --for nxdi; a fork finds that directory through "
            "NEURON_COMPILED_ARTIFACTS, and its options have to be chosen by hand",
        )
    return Consumer("vllm", version)


def program_of(text: str, store: Store) -> tuple[Artifact, dict[str, Any]]:
    """The Neuron program that `text` names, and its spec.

    Raises:
        ArtifactNotFoundError: none of that name.
        ConfigError: no program, or one for the cpu target.
    """
    artifact = store.find(text)
    spec = store.spec_of(artifact)
    if artifact.kind != "compile" or spec["backend"] != "nxdi":
        what = f"a {artifact.kind}" if artifact.kind != "compile" else "a program for cpu"
        raise ConfigError(
            f"{artifact.key[:12]} is {what}; NxD Inference and vLLM load programs for Neuron",
            field="KEY",
            value=text,
            legal="a program built with a Neuron --target",
            hint="neuroncompile store ls --kind compile",
        )
    return artifact, dict(spec)


def check_consumer(
    consumer: Consumer, spec: dict[str, Any], draft: str | None = None
) -> str | None:
    """Refuse by name what the consumer is known not to take; a warning, if there is one.

    Raises:
        ConfigError: naming the keyword.
    """
    if consumer.name != "vllm":
        if spec["neuron"].get("kv_quant_config"):
            return (
                "NxD Inference 0.9 fails on its own neuron_config.json with kv_quant_config in it: "
                "construct the config and pass it to the class"
            )
        return None
    if "class" in spec["model"]:
        raise ConfigError(
            f"this program runs a class of your own; {_NO_CLASS}",
            field="model.class",
            value=spec["model"]["class"]["class"],
            legal="a family of NxD Inference",
            hint="export it --for nxdi",
        )
    target, nxdi = spec["target"], spec["toolchain"].get("neuronx-distributed-inference")
    check_family(consumer.version, next(iter(spec["model"].get("architectures") or [""])))
    warning = check_plugin(consumer.version, target["platform"], nxdi)
    lnc = spec["neuron"].get("logical_nc_config")
    if lnc is not None and target.get("lnc") is not None and lnc != target["lnc"]:
        raise ConfigError(
            f"logical_nc_config is {lnc} in this program, whose graphs are for {target['lnc']}",
            field="logical_nc_config",
            value=lnc,
            legal=target["lnc"],
            hint="build it again with one of both",
        )
    serving_of(spec["neuron"], draft=draft, first=is_first(consumer.version))
    return warning


def _looked_at(directory: str, artifact: Artifact, store: Store, output: Output) -> str | None:
    """Check an export where it is on this host; the draft's place in it."""
    path = Path(directory)
    if not path.exists():
        output.warn(f"{directory} is not on this host, so nothing in it was checked")
        return None
    speculation = check_exported(path, artifact, store).get("fused_spec_config") or {}
    return speculation.get("draft_model_path") or None


def env_command(
    key: str,
    target: str,
    settings: Settings,
    output: Output,
    *,
    directory: str | None = None,
    draft: str | None = None,
    form: str = "shell",
) -> int:
    """Run `neuroncompile env`: the variables and options that serve a program."""
    consumer = consumer_of(target)
    if form not in ("shell", "docker", "json"):
        raise UsageError(f"--format {form!r} is none", hint="shell, docker or json")
    if consumer.name == "nxdi":
        raise UsageError(
            "NxD Inference needs no variables: its loader takes the directory",
            hint="--for vllm:VERSION; or export the program --for nxdi",
        )
    store = open_store(settings, output)
    artifact, spec = program_of(key, store)
    warning = check_consumer(consumer, spec, draft)
    if warning is not None:
        output.warn(warning)
    if directory is not None:
        directory = str(Path(directory).expanduser().absolute())
        found = _looked_at(directory, artifact, store, output)
        draft = draft or found
    if draft is None and "draft" in spec:
        raise UsageError(
            "this program decodes with a draft, and vLLM takes its path as an option",
            hint="--draft-model PATH, or --dir DIR with what export has written",
        )
    serving = serving_of(spec["neuron"], draft=draft, first=is_first(consumer.version))
    tp = spec["neuron"]["tp_degree"]
    variables = {
        "NEURON_COMPILED_ARTIFACTS": directory or "DIR",
        **serving.environment,
        "NEURON_LOGICAL_NC_CONFIG": str(spec["target"].get("lnc") or 1),
        "NEURON_RT_VISIBLE_CORES": f"0-{tp - 1}" if tp > 1 else "0",
    }
    unset = ["DISABLE_NEURON_CUSTOM_SCHEDULER"]
    if "NEURON_ON_DEVICE_SAMPLING_DISABLED" not in variables:
        unset.append("NEURON_ON_DEVICE_SAMPLING_DISABLED")
    if directory is None:
        output.warn(
            f"DIR stands for the directory of `neuroncompile export {artifact.key[:12]} DIR "
            f"--for {consumer.text} --model REF`; name it with --dir"
        )
    if form == "json":
        output.stream(json.dumps({**variables, "VLLM_OPTIONS": list(serving.options)}) + "\n")
    elif form == "docker":
        output.stream("".join(f"{name}={value}\n" for name, value in variables.items()))
    else:
        output.stream(f"unset {' '.join(unset)}\n")
        for name, value in variables.items():
            output.stream(f"export {name}={shlex.quote(value)}\n")
        words = " ".join(map(shlex.quote, serving.options))
        output.stream(f"# vllm serve MODEL {words}\n")
    output.result(
        {
            "key": artifact.key,
            "for": consumer.text,
            "contract": "A",
            "environment": variables,
            "unset": unset,
            "options": list(serving.options),
            "override_neuron_config": dict(serving.overrides),
        }
    )
    return 0
