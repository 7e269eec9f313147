"""The vLLM options that equal a compiled program, and what no option can say.

vLLM's Neuron plugin derives a neuron config from its options and then takes the program's own
without comparing; its scheduler and its cache, though, follow the options. So both have to say
the same. From vllm-neuron 0.1.0 and 0.2.0, worker/neuronx_distributed_model_loader.py and
platform.py.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from neuroncompile.errors import ConfigError

__all__ = ["Serving", "serving_of"]

SAMPLING = {"dynamic": True, "deterministic": False}

_BY_OPTION = frozenset(
    {
        "tp_degree",
        "batch_size",
        "max_batch_size",
        "tkg_batch_size",
        "seq_len",
        "max_length",
        "torch_dtype",
        "is_prefix_caching",
        "is_block_kv_layout",
        "pa_block_size",
        "pa_num_blocks",
        "enable_fused_speculation",
        "speculation_length",
        "enable_eagle_speculation",
        "logical_nc_config",
    }
)
"""Keywords that options and variables say."""

_UNSERVED = {
    "is_medusa": "Medusa heads",
    "token_tree_config": "token trees",
    "is_chunked_prefill": "chunked prefill",
    "chunked_prefill_config": "chunked prefill",
    "lora_config": "LoRA adapters",
}


class Serving(NamedTuple):
    """How to serve one program.

    Attributes:
        options: words of the command line, in pairs or alone.
        environment: variables.
        overrides: keywords that no option says.
    """

    options: tuple[str, ...]
    environment: Mapping[str, str]
    overrides: Mapping[str, Any]


def serving_of(
    neuron: Mapping[str, Any], *, draft: str | None = None, first: bool = False
) -> Serving:
    """The options and variables that match a program.

    Args:
        neuron: its NxDI keywords, as asked and derived.
        draft: the draft's path or name, where the program has one.
        first: for the plugin's first release (`vllm_plugins.is_first`).

    Raises:
        ConfigError: the plugin cannot serve it, by the name of the keyword.
    """
    _check(neuron)
    if first and neuron.get("on_device_sampling_config") is None:
        raise _refused(
            "on_device_sampling_config", None, "set", "this plugin samples on the device only"
        )
    batch, length = neuron["batch_size"], neuron["seq_len"]
    paged = bool(neuron.get("is_block_kv_layout"))
    options = [
        f"--tensor-parallel-size={neuron['tp_degree']}",
        f"--max-num-seqs={batch}",
        f"--max-model-len={length}",
        f"--dtype={neuron['torch_dtype']}",
    ]
    blocks = batch
    if paged:
        size, kept = neuron["pa_block_size"], neuron["pa_num_blocks"]
        blocks = kept - 1  # the plugin adds one for vLLM's null block
        needed = -(-length // size) * batch
        if blocks < needed:
            raise _refused(
                "pa_num_blocks",
                kept,
                f"at least {needed + 1}",
                f"vLLM takes one block for itself, and {batch} sequences of {length} tokens need "
                f"{needed}",
            )
        caching = "--enable-prefix-caching" if neuron.get("is_prefix_caching") else None
        if caching is None:
            raise _refused(
                "is_block_kv_layout",
                True,
                "with is_prefix_caching",
                "the plugin pages its cache for prefix caching only",
            )
        options += [caching, f"--block-size={size}"]
    else:
        options.append("--no-enable-prefix-caching")
    if first:
        blocks += 1  # nothing is added: the option says vLLM's null block, too
    options.append(f"--num-gpu-blocks-override={blocks}")
    if neuron.get("speculation_length"):
        options.append(f"--speculative-config={json.dumps(_speculation(neuron, draft))}")
    environment = {"NEURON_LOGICAL_NC_CONFIG": str(neuron.get("logical_nc_config") or 1)}
    if neuron.get("on_device_sampling_config") is None:
        environment["NEURON_ON_DEVICE_SAMPLING_DISABLED"] = "1"
    overrides = _overrides(neuron)
    if overrides:
        text = json.dumps({"override_neuron_config": overrides}, sort_keys=True)
        options.append(f"--additional-config={text}")
    return Serving(tuple(options), environment, overrides)


def _overrides(neuron: Mapping[str, Any]) -> dict[str, Any]:
    """What differs from the config that the plugin derives by itself."""
    batch = neuron["batch_size"]
    own: dict[str, Any] = {
        "ctx_batch_size": 1,
        "max_context_length": neuron["seq_len"],
        "enable_bucketing": True,
        "is_continuous_batching": batch > 1,
        "quantized": False,
        "padding_side": "right",
        "on_device_sampling_config": SAMPLING,
    }
    vision = neuron.get("vision_neuron_config")
    if vision is not None:
        # of a family with images the plugin reads these two alone, and asserts that both are all
        text = neuron.get("text_neuron_config") or {}
        parts = ("text_neuron_config", "vision_neuron_config")
        rest = {name: value for name, value in neuron.items() if name not in parts}
        return {
            "text_neuron_config": _overrides({**rest, **text}),
            "vision_neuron_config": dict(vision),
        }
    asked = {"on_device_sampling_config": None, **neuron}
    return {
        name: value
        for name, value in sorted(asked.items())
        if name not in _BY_OPTION and not (name in own and _same(own[name], value))
    }


def _same(derived: Any, value: Any) -> bool:
    if isinstance(derived, Mapping) and isinstance(value, Mapping):
        return {**derived, **value} == dict(derived)
    return bool(derived == value)


def _speculation(neuron: Mapping[str, Any], draft: str | None) -> dict[str, Any]:
    table: dict[str, Any] = {"num_speculative_tokens": neuron["speculation_length"]}
    if draft is not None:
        table["model"] = draft
    if neuron.get("enable_eagle_speculation"):
        table["method"] = "eagle"
    return table


def _check(neuron: Mapping[str, Any]) -> None:
    for name, what in _UNSERVED.items():
        if neuron.get(name):
            raise _refused(name, neuron[name], "unset", f"vLLM's Neuron plugin serves no {what}")
    if neuron.get("padding_side", "right") != "right":
        raise _refused("padding_side", neuron["padding_side"], "right", "vLLM pads on the right")
    if neuron.get("ctx_batch_size", 1) != 1:
        raise _refused(
            "ctx_batch_size", neuron["ctx_batch_size"], 1, "vLLM encodes one prompt at a time"
        )
    if (neuron.get("pp_degree") or 1) != 1:
        raise _refused("pp_degree", neuron["pp_degree"], 1, "the plugin runs no pipeline of stages")
    if neuron.get("kv_quant_config"):
        raise _refused(
            "kv_quant_config",
            neuron["kv_quant_config"],
            "unset",
            "NxDI cannot read its own neuron_config.json with it, and vLLM reads that file",
        )
    tkg = neuron.get("tkg_batch_size", neuron["batch_size"])
    if tkg != neuron["batch_size"]:
        raise _refused(
            "tkg_batch_size", tkg, neuron["batch_size"], "vLLM decodes with one batch size"
        )
    speculates = neuron.get("speculation_length")
    if speculates and not neuron.get("enable_fused_speculation"):
        raise _refused(
            "enable_fused_speculation", False, True, "the plugin speculates in one program only"
        )


def _refused(field: str, value: Any, legal: Any, why: str) -> ConfigError:
    return ConfigError(
        f"{field} is {value!r} in this program; {why}",
        field=field,
        value=value,
        legal=legal,
        hint=f"build it with {field} {legal}, or serve it with NxD Inference itself",
    )
