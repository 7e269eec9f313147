"""What can be named."""

from __future__ import annotations

import json

import pytest

from neuroncompile.cli import main


def test_models_ls(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["models", "ls", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["result"]
    by_name = {row["architecture"]: row for row in rows}
    assert len({row["family"] for row in rows}) == 14
    llama, mistral = by_name["LlamaForCausalLM"], by_name["MistralForCausalLM"]
    assert (llama["class"], llama["nxdi_since"], llama["cpu"]) == (
        "NeuronLlamaForCausalLM",
        "0.1",
        True,
    )
    assert mistral["module"] == "neuronx_distributed_inference.models.mistral.modeling_mistral"
    assert mistral["nxdi_since"] == "0.9"
    assert by_name["DbrxForCausalLM"]["cpu"] is False
    assert main(["models", "ls"]) == 0
    text = capsys.readouterr().out
    assert "MllamaForConditionalGeneration" in text
    assert ">= 0.8" in text
