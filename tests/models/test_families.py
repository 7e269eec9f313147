"""Which architecture a config.json asks for."""

from __future__ import annotations

from typing import Any

import pytest

from neuroncompile.errors import ConfigError, ModelError
from neuroncompile.models.architecture import ARCHITECTURES, architecture_of
from neuroncompile.models.families import check_release, nxdi_class


@pytest.mark.parametrize(
    ("config", "name"),
    [
        ({"architectures": ["LlamaForCausalLM"]}, "LlamaForCausalLM"),
        ({"architectures": ["Custom", "Qwen2ForCausalLM"]}, "Qwen2ForCausalLM"),
        ({"architectures": ["MistralForCausalLM", "LlamaForCausalLM"]}, "MistralForCausalLM"),
        ({"architectures": "Qwen3ForCausalLM"}, "Qwen3ForCausalLM"),
        ({"architectures": None, "model_type": "qwen3"}, "Qwen3ForCausalLM"),
        ({"architectures": [], "model_type": "qwen3_moe"}, "Qwen3MoeForCausalLM"),
        ({"model_type": "gemma3_text"}, "Gemma3ForCausalLM"),
        ({"model_type": "gemma3"}, "Gemma3ForConditionalGeneration"),
    ],
)
def test_found(config: dict[str, Any], name: str) -> None:
    assert architecture_of(config).name == name


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"architectures": ["LamaForCausalLM"]}, ["LamaForCausalLM", "LlamaForCausalLM"]),
        ({"architectures": ["A", "B"], "model_type": "llama"}, ["A, B"]),
        ({"model_type": "mistrall"}, ["mistrall", "is mistral"]),
        ({}, ["neither"]),
        ({"architectures": {"a": 1}}, ["not a list"]),
        ({"architectures": [1]}, ["not a list"]),
        ({"architectures": ["LlamaForCausalLM"], "model_type": "cohere"}, ["contradicts"]),
    ],
)
def test_refused(config: dict[str, Any], words: list[str]) -> None:
    with pytest.raises(ModelError) as raised:
        architecture_of(config)
    text = f"{raised.value} {raised.value.hint}"
    assert all(word in text for word in words)
    assert "qwen3_moe" in text or "model_type" in text or "LlamaForCausalLM" in text


def test_every_family_names_its_vendor_class() -> None:
    for architecture in ARCHITECTURES.values():
        module, _, name = architecture.nxdi.partition(":")
        assert module.endswith(f".{architecture.family}.modeling_{architecture.family}")
        assert name.startswith("Neuron")
    cpu = {a.family for a in ARCHITECTURES.values() if a.cpu}
    assert cpu == {"llama", "mistral", "qwen2", "qwen3"}


@pytest.mark.parametrize(
    ("name", "version", "has"),
    [
        ("LlamaForCausalLM", "0.1.0", True),
        ("Qwen3ForCausalLM", "0.4.7422", False),
        ("Qwen3ForCausalLM", "0.5.9230", True),
        ("Gemma3ForCausalLM", "0.8.16251", False),
        ("Gemma3ForCausalLM", "0.10.17970", True),
        ("Gemma3ForCausalLM", None, True),
        ("Gemma3ForCausalLM", "unknown", True),
    ],
)
def test_a_family_needs_a_release_that_has_it(name: str, version: str | None, has: bool) -> None:
    if has:
        check_release(ARCHITECTURES[name], version, {})
        return
    with pytest.raises(ConfigError) as raised:
        check_release(ARCHITECTURES[name], version, {})
    assert ARCHITECTURES[name].since in str(raised.value)
    assert str(version) in str(raised.value)
    assert raised.value.field == "toolchain.neuronx-distributed-inference"


def test_mistral_goes_through_llama_before_it_has_a_class() -> None:
    mistral = ARCHITECTURES["MistralForCausalLM"]
    assert nxdi_class(mistral, "0.8.16251").endswith("modeling_llama:NeuronLlamaForCausalLM")
    assert nxdi_class(mistral, "0.9.17334") == mistral.nxdi
    assert nxdi_class(mistral, None) == mistral.nxdi
    check_release(mistral, "0.8.16251", {"sliding_window": None})
    check_release(mistral, "0.8.16251", {"sliding_window": 4096}, seq_len=4096)
    check_release(mistral, "0.9.17334", {"sliding_window": 4096}, seq_len=8192)
    with pytest.raises(ConfigError, match="Llama class") as raised:
        check_release(mistral, "0.8.16251", {"sliding_window": 4096}, seq_len=8192)
    assert raised.value.field == "sliding_window"
    assert "4096" in str(raised.value.hint)
