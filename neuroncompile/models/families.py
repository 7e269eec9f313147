"""The model families, by the class names and `model_type`s of their Hugging Face configs.

Every family names NxD Inference's class, as listed in its `utils/constants.py`, and the release
that first listed it (tags 0.1 to 0.7 and release commits 0.8 and 0.9 of the public repository);
the class is only ever imported in a Neuron toolchain. The cpu target runs the families marked so.
`DEFAULTS` is what their configs leave out.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from neuroncompile.errors import ConfigError, ModelError, nearest

__all__ = [
    "ARCHITECTURES",
    "DEFAULTS",
    "EXPERTS",
    "NULLABLE",
    "THETA",
    "YARN",
    "Architecture",
    "architecture_of",
    "check_release",
    "nxdi_class",
]


class Architecture(NamedTuple):
    """One supported Hugging Face class.

    Attributes:
        name: class name in `architectures` of config.json.
        family: our name, which is NxDI's.
        nxdi: NxD Inference's "module:Class", or the user's own.
        cpu: whether the cpu target runs it.
        model_types: legal `model_type`s; the first is the usual one.
        since: first NxDI release whose `MODEL_TYPES` lists the family; "" for a user's class.
    """

    name: str
    family: str
    nxdi: str
    cpu: bool
    model_types: tuple[str, ...]
    since: str = ""

    @property
    def text_only(self) -> bool:
        """Whether there is nothing around the language model: no vision tower, no parts."""
        return self.name.endswith("ForCausalLM") and self.family != "dbrx"


SINCE = {
    "llama": "0.1",
    "mixtral": "0.1",
    "dbrx": "0.1",
    "mllama": "0.1",
    "llama4": "0.5",
    "qwen2": "0.5",
    "qwen3": "0.5",
    "qwen3_moe": "0.6",
    "gpt_oss": "0.7",
    "pixtral": "0.8",
    "qwen2_vl": "0.8",
    "qwen3_vl": "0.8",
    "gemma3": "0.9",
    "mistral": "0.9",
}
"""Family → first NxDI release that lists it. All are still listed in 0.9, the last with public
source."""

STAND_INS = {
    "mistral": "neuronx_distributed_inference.models.llama.modeling_llama:NeuronLlamaForCausalLM"
}
"""Family → the class that runs it before NxDI lists it, as vLLM's loader does: the same layers
less the sliding window."""


def _architecture(
    name: str, family: str, nxdi: str, *model_types: str, cpu: bool = False
) -> Architecture:
    module = f"neuronx_distributed_inference.models.{family}.modeling_{family}"
    types = model_types or (family,)
    return Architecture(name, family, f"{module}:{nxdi}", cpu, types, SINCE[family])


ARCHITECTURES: dict[str, Architecture] = {
    a.name: a
    for a in (
        _architecture("LlamaForCausalLM", "llama", "NeuronLlamaForCausalLM", cpu=True),
        _architecture("MistralForCausalLM", "mistral", "NeuronMistralForCausalLM", cpu=True),
        _architecture("Qwen2ForCausalLM", "qwen2", "NeuronQwen2ForCausalLM", cpu=True),
        _architecture("Qwen3ForCausalLM", "qwen3", "NeuronQwen3ForCausalLM", cpu=True),
        _architecture("Qwen3MoeForCausalLM", "qwen3_moe", "NeuronQwen3MoeForCausalLM"),
        _architecture("MixtralForCausalLM", "mixtral", "NeuronMixtralForCausalLM"),
        _architecture("DbrxForCausalLM", "dbrx", "NeuronDbrxForCausalLM"),
        _architecture("GptOssForCausalLM", "gpt_oss", "NeuronGptOssForCausalLM"),
        _architecture("Gemma3ForCausalLM", "gemma3", "NeuronGemma3ForCausalLM", "gemma3_text"),
        _architecture("Gemma3ForConditionalGeneration", "gemma3", "NeuronGemma3ForCausalLM"),
        _architecture("Llama4ForCausalLM", "llama4", "NeuronLlama4ForCausalLM", "llama4_text"),
        _architecture("Llama4ForConditionalGeneration", "llama4", "NeuronLlama4ForCausalLM"),
        _architecture("MllamaForConditionalGeneration", "mllama", "NeuronMllamaForCausalLM"),
        _architecture(
            "LlavaForConditionalGeneration", "pixtral", "NeuronPixtralForCausalLM", "llava"
        ),
        _architecture("Qwen2VLForConditionalGeneration", "qwen2_vl", "NeuronQwen2VLForCausalLM"),
        _architecture("Qwen3VLForConditionalGeneration", "qwen3_vl", "NeuronQwen3VLForCausalLM"),
    )
}
"""Hugging Face class name → architecture."""


_DENSE: dict[str, Any] = {
    "hidden_act": "silu",
    "rms_norm_eps": 1e-6,
    "tie_word_embeddings": False,
}
_QWEN: dict[str, Any] = {
    **_DENSE,
    "max_position_embeddings": 32768,
    "use_sliding_window": False,
    "sliding_window": 4096,
}
DEFAULTS: dict[str, dict[str, Any]] = {
    "llama": {
        **_DENSE,
        "max_position_embeddings": 2048,
        "attention_bias": False,
        "mlp_bias": False,
    },
    "mistral": {
        **_DENSE,
        "num_key_value_heads": 8,
        "max_position_embeddings": 131072,
        "sliding_window": 4096,
    },
    "mixtral": {
        **_DENSE,
        "rms_norm_eps": 1e-5,
        "num_key_value_heads": 8,
        "max_position_embeddings": 131072,
        "sliding_window": None,
        "num_experts_per_tok": 2,
        "num_local_experts": 8,
        "router_jitter_noise": 0.0,
    },
    "qwen2": {**_QWEN, "num_key_value_heads": 32, "max_window_layers": 28},
    "qwen3": {
        **_QWEN,
        "num_key_value_heads": 32,
        "head_dim": 128,
        "attention_bias": False,
        "max_window_layers": 28,
    },
    "qwen3_moe": {
        **_QWEN,
        "num_key_value_heads": 4,
        "attention_bias": False,
        "decoder_sparse_step": 1,
        "moe_intermediate_size": 768,
        "num_experts_per_tok": 8,
        "num_experts": 128,
        "norm_topk_prob": False,
        "mlp_only_layers": [],
    },
    "dbrx": {
        "tie_word_embeddings": False,
        "max_position_embeddings": 2048,
        "num_key_value_heads": 1,
        "emb_pdrop": 0.0,
    },
    "gpt_oss": {
        **_DENSE,
        "rms_norm_eps": 1e-5,
        "head_dim": 64,
        "num_key_value_heads": 8,
        "max_position_embeddings": 131072,
        "sliding_window": 128,
        "attention_bias": True,
        "num_local_experts": 128,
        "num_experts_per_tok": 4,
        "swiglu_alpha": 1.702,
        "swiglu_limit": 7.0,
    },
    "gemma3": {
        "hidden_activation": "gelu_pytorch_tanh",
        "rms_norm_eps": 1e-6,
        "tie_word_embeddings": True,
        "num_attention_heads": 8,
        "num_key_value_heads": 4,
        "head_dim": 256,
        "vocab_size": 262208,
        "max_position_embeddings": 131072,
        "attention_bias": False,
        "query_pre_attn_scalar": 256,
        "sliding_window": 4096,
        "use_bidirectional_attention": False,
    },
    "llama4": {
        **_DENSE,
        "rms_norm_eps": 1e-5,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "intermediate_size_mlp": 16384,
        "max_position_embeddings": 131072,
        "attention_bias": False,
        "num_local_experts": 16,
        "num_experts_per_tok": 1,
        "interleave_moe_layer_step": 1,
        "router_jitter_noise": 0.0,
        "use_qk_norm": True,
        "no_rope_layer_interval": 4,
        "attention_chunk_size": 8192,
        "attn_temperature_tuning": True,
        "floor_scale": 8192,
        "attn_scale": 0.1,
    },
    "mllama": {
        **_DENSE,
        "rms_norm_eps": 1e-5,
        "num_key_value_heads": 8,
        "max_position_embeddings": 131072,
        "cross_attention_layers": [3, 8, 13, 18, 23, 28, 33, 38],
        "dropout": 0.0,
    },
    "qwen2_vl": {
        **_QWEN,
        "rms_norm_eps": 1e-5,
        "num_key_value_heads": 8,
        "max_window_layers": 80,
    },
    "qwen3_vl": {
        **_DENSE,
        "num_key_value_heads": 32,
        "head_dim": 128,
        "max_position_embeddings": 128000,
        "attention_bias": False,
    },
}
"""Family → field → what it means that a config.json leaves it out (transformers 5.24's classes).

Sizes that a file of the family always has are not here, because a model of a guessed size is a
mistake and not a default; what surrounds a language model is in `composite`. Pixtral's text model
is a Mistral or Llama and takes its defaults.
"""

NULLABLE = ("sliding_window", "attention_chunk_size", "moe_normalize_expert_weights")
"""Fields whose null is a value ("off") and not a missing one."""

THETA = {
    "mixtral": 1_000_000.0,
    "gpt_oss": 150_000.0,
    "llama4": 500_000.0,
    "mllama": 500_000.0,
    "qwen2_vl": 1_000_000.0,
    "qwen3_vl": 500_000.0,
}
"""Family → base of the rotary frequencies, where it is not 10,000."""

YARN: dict[str, Any] = {
    "rope_type": "yarn",
    "factor": 32.0,
    "beta_fast": 32.0,
    "beta_slow": 1.0,
    "truncate": False,
    "original_max_position_embeddings": 4096,
}
"""GPT-OSS's rotary scaling where the file names none."""

EXPERTS = {"qwen3_moe": "num_experts", "mixtral": "num_local_experts"}
"""Family → its own name of the number of experts; both names are read."""


def architecture_of(config: Mapping[str, Any]) -> Architecture:
    """The architecture a config.json asks for.

    The first supported entry of `architectures`; where there is none at all, `model_type`.

    Raises:
        ModelError: nothing supported is named, or the two fields contradict each other, in
            which case transformers would follow `model_type` and others the class name.
    """
    names = config.get("architectures")
    model_type = config.get("model_type")
    if isinstance(names, str):
        names = [names]
    if names is not None and not (
        isinstance(names, (list, tuple)) and all(isinstance(n, str) for n in names)
    ):
        raise ModelError(
            "architectures in config.json is not a list of class names",
            hint=f"legal names: {', '.join(ARCHITECTURES)}",
            details={"architectures": repr(names)},
        )
    if not names:
        return _by_model_type(model_type)
    found = next((ARCHITECTURES[n] for n in names if n in ARCHITECTURES), None)
    if found is None:
        raise _unsupported(f"architecture {', '.join(names)} is not supported", names[0])
    if model_type is not None and model_type not in found.model_types:
        raise ModelError(
            f"config.json contradicts itself: architecture {found.name} with model_type "
            f"{model_type!r}",
            hint=f"set model_type to {found.model_types[0]!r}, if that is what the model is",
            details={"architectures": list(names), "model_type": model_type},
        )
    return found


def nxdi_class(architecture: Architecture, version: str | None) -> str:
    """ "module:Class" of NxDI that runs the architecture in a release."""
    if architecture.family in STAND_INS and _precedes(version, architecture.since):
        return STAND_INS[architecture.family]
    return architecture.nxdi


def check_release(
    architecture: Architecture,
    version: str | None,
    normal: Mapping[str, Any],
    *,
    seq_len: int | None = None,
) -> None:
    """Refuse a family that this NxDI does not have yet.

    Args:
        version: of neuronx-distributed-inference, "0.8.16251"; None or one that cannot be read
            is not judged.
        normal: normalised config of the model.
        seq_len: of the program; a sliding window at least as long does nothing.

    Raises:
        ConfigError: with the first release that lists the family.
    """
    if not _precedes(version, architecture.since):
        return
    window = normal.get("sliding_window")
    if architecture.family in STAND_INS:
        if window is None or (seq_len is not None and seq_len <= window):
            return
        raise ConfigError(
            f"sliding_window is {window}; NxD Inference {version} runs {architecture.family} "
            "through its Llama class, which has none",
            field="sliding_window",
            value=window,
            legal=f"seq_len up to {window}, or NxD Inference from {architecture.since} on",
            hint=f"set seq_len to {window} or less, or name a newer SDK with --toolchain",
        )
    raise ConfigError(
        f"{architecture.family} is in NxD Inference from {architecture.since} on, and the "
        f"toolchain has {version}",
        field="toolchain.neuronx-distributed-inference",
        value=version,
        legal=f"at least {architecture.since}",
        hint="name a newer SDK with --toolchain, or a class of your own with --model-class",
    )


def _precedes(version: str | None, since: str) -> bool:
    numbers = (version or "").split(".")[:2]
    if not since or len(numbers) < 2 or not all(n.isdigit() for n in numbers):
        return False
    return [int(n) for n in numbers] < [int(n) for n in since.split(".")]


def _by_model_type(model_type: object) -> Architecture:
    if model_type is None:
        raise _unsupported("config.json names neither architectures nor model_type", None)
    for architecture in ARCHITECTURES.values():
        if model_type in architecture.model_types:
            return architecture
    raise _unsupported(f"model_type {model_type!r} is not supported", str(model_type))


def _unsupported(message: str, name: str | None) -> ModelError:
    families = list(dict.fromkeys(a.family for a in ARCHITECTURES.values()))
    near = None
    if name is not None:
        near = nearest(name, [*ARCHITECTURES, *families])
    hint = (
        f"supported families: {', '.join(families)} (`neuroncompile models ls`); a class of your "
        "own for a Neuron target: --model-class"
    )
    if near is not None:
        hint = f"the nearest supported one is {near}; {hint}"
    return ModelError(message, hint=hint, details={"supported": families, "nearest": near})
