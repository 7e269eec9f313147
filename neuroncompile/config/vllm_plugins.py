"""Releases of vLLM's Neuron plugin that load NxD Inference's directories, and what each runs on.

From the README of each release (vllm-project/vllm-neuron) and the SDK's release notes. A version
may be vLLM's or the plugin's own: no number is both. Releases between these are not documented
publicly, so nothing is said of them.
"""

from __future__ import annotations

from neuroncompile.errors import ConfigError

__all__ = ["check_family", "check_plugin", "is_first", "is_fork"]

_SECOND_GENERATION = ("trn1", "trn1n", "inf2", "trn2")

_PLUGINS = (
    # vLLM, plugin, SDK it was released with, that SDK's NxDI, targets
    ("0.10", "0.1", "2.26", "0.6", _SECOND_GENERATION),
    ("0.11", "0.2", "2.26", "0.6", _SECOND_GENERATION),
    ("0.16", "0.5", "2.29", "0.9", ("trn2", "trn3")),
)


_UNSERVED = {
    "LlavaForConditionalGeneration": "its loader refuses Pixtral",
    "MllamaForConditionalGeneration": "of the families with images it serves Llama 4 alone",
    "Qwen2VLForConditionalGeneration": "its loader does not find NxD Inference's class",
    "Qwen3VLForConditionalGeneration": "its loader does not find NxD Inference's class",
    "GptOssForCausalLM": "its loader does not find NxD Inference's class",
}
"""Families of NxD Inference's that releases 0.1 and 0.2 do not serve: README, and the loader's
`get_neuron_model` and `_get_neuron_model_cls`. Release 0.1 does find gpt-oss."""


def check_family(version: str, architecture: str) -> None:
    """Refuse a family that this release of the plugin is known not to serve.

    Args:
        architecture: first of the model's `architectures`.

    Raises:
        ConfigError: with what the plugin does instead.
    """
    first = is_first(version)
    second = version.split(".")[:2] in (["0", "11"], ["0", "2"])
    if not (first or second) or (first and architecture == "GptOssForCausalLM"):
        return
    if architecture in _UNSERVED:
        raise ConfigError(
            f"vLLM {version}'s Neuron plugin does not serve {architecture}: "
            f"{_UNSERVED[architecture]}",
            field="model.architectures",
            value=architecture,
            legal="a family that the plugin serves",
            hint="export --for nxdi, or name a newer vLLM that serves it in --for",
        )


def is_fork(version: str) -> bool:
    """Whether this vLLM is older than the plugin: a fork of AWS's with options of its own."""
    first, second = (int(number) for number in version.split(".")[:2])
    return first == 0 and (second == 0 or 7 <= second <= 9)


def is_first(version: str) -> bool:
    """Whether it is the plugin's first release, which differs in how its options are read.

    It takes `num_gpu_blocks_override` as it is, where 0.2 adds one for vLLM's null block
    (platform.py), and it samples on the device only (`NeuronCausalLM.sample`).
    """
    return version.split(".")[:2] in (["0", "10"], ["0", "1"])


def check_plugin(version: str, platform: str, nxdi: str | None) -> str | None:
    """Whether a release serves programs for a target.

    Args:
        version: vLLM's or the plugin's, as typed: "0.11", "0.2.0".
        platform: the program's target.
        nxdi: version of NxDI that compiled it.

    Returns:
        A warning where another SDK compiled the program than the plugin was released with: the
        plugin pins none, but a runtime may refuse what a newer compiler made.

    Raises:
        ConfigError: that release does not run on the target.
    """
    minor = ".".join(version.split(".")[:2])
    for vllm, plugin, sdk, released, targets in _PLUGINS:
        if minor not in (vllm, plugin):
            continue
        if platform not in targets:
            raise ConfigError(
                f"this program is for {platform}; vLLM {vllm} with its Neuron plugin {plugin} "
                f"(SDK {sdk}) runs on {', '.join(targets)}",
                field="target.platform",
                value=platform,
                legal=list(targets),
                hint="build it for one of these, or name the vLLM that serves it in --for",
            )
        if nxdi is not None and ".".join(nxdi.split(".")[:2]) != released:
            return (
                f"vLLM {vllm}'s Neuron plugin {plugin} came with SDK {sdk} (NxD Inference "
                f"{released}), and this program is of NxD Inference {nxdi}: serve it with the SDK "
                "that compiled it"
            )
    return None
