"""Tiny models through our worker and our loop on NxD Inference's own classes, on the host.

Its CPU mode computes what its graphs would, in float32 at one rank; compilers, devices and
on-device sampling are not in it. The reference is transformers, the same release.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from neuroncompile.backends.nxdi.engine import NxdiEngine
from neuroncompile.backends.nxdi.model_directory import lay_out
from neuroncompile.backends.nxdi.process import Limits, Worker
from neuroncompile.errors import RunError
from neuroncompile.models.families import ARCHITECTURES
from tests.backends.nxdi import vendor

pytestmark = [pytest.mark.neuron, vendor.needed]

COMMON = {
    "vocab_size": 256,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
    "rms_norm_eps": 1e-5,
    "tie_word_embeddings": False,
    "bos_token_id": 0,
    "eos_token_id": 1,
}
FAMILIES: dict[str, dict[str, Any]] = {
    "LlamaForCausalLM": {"rope_theta": 20000.0},
    "MistralForCausalLM": {"sliding_window": None, "head_dim": 16},
    "Qwen2ForCausalLM": {},
    "Qwen3ForCausalLM": {"head_dim": 32},
    "MixtralForCausalLM": {"num_local_experts": 4, "num_experts_per_tok": 2},
}
PROMPTS = [[5, 9, 3], [7], [11, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 13], [250] * 31]
NEW = 12

MAKE = """
import json, sys, torch, transformers
name, values, seed, out, prompts, new = json.loads(sys.argv[1])
config = getattr(transformers, name.replace("ForCausalLM", "Config"))(**values)
torch.manual_seed(seed)
model = getattr(transformers, name)(config).eval()
model.save_pretrained(out)
found = []
for prompt in prompts:
    ids = torch.tensor([prompt])
    for _ in range(new):
        ids = torch.cat([ids, model(ids).logits[:, -1].argmax(-1, keepdim=True)], 1)
    found.append(ids[0, len(prompt):].tolist())
print(json.dumps(found))
"""


def made(name: str, out: Path, seed: int = 0, **more: Any) -> list[list[int]]:
    """A random model in `out`, and transformers' greedy tokens for the prompts."""
    values = {**COMMON, **FAMILIES[name], **more}
    order = json.dumps([name, values, seed, str(out), PROMPTS, NEW])
    done = subprocess.run(
        [str(vendor.PYTHON), "-c", MAKE, order], capture_output=True, text=True, check=True
    )
    tokens: list[list[int]] = json.loads(done.stdout.splitlines()[-1])
    return tokens


def opened(name: str, model: Path, place: Path, batch: int, **more: Any) -> NxdiEngine:
    """An engine for the model in `model`, laid out as a program's would be."""
    config = json.loads((model / "config.json").read_text())
    weights = {path.name: path for path in model.glob("*.safetensors")}
    directory = lay_out(place / "model", config, weights)
    neuron = {
        "batch_size": batch,
        "ctx_batch_size": 1,
        "tkg_batch_size": batch,
        "is_continuous_batching": batch > 1,
        "seq_len": 64,
        "max_context_length": 64,
        "torch_dtype": "float32",
        "enable_bucketing": False,
        "tp_degree": 1,
        "logical_nc_config": 2,
        "padding_side": "right",
        **more,
    }
    worker = Worker(
        str(vendor.PYTHON),
        environment=vendor.environment(place / "site"),
        directory=place,
        log=place / "log",
        limits=Limits(seconds=300),
    )
    order = {
        "class": ARCHITECTURES[name].nxdi,
        "model": str(directory),
        "neuron": neuron,
        "cpu": True,
    }
    return NxdiEngine(worker, order, "cpu mode")


def alone(engine: NxdiEngine, prompt: list[int], slot: int = 0) -> list[int]:
    tokens = [first(engine, prompt, slot)]
    while len(tokens) < NEW:
        position = len(prompt) + len(tokens) - 1
        logits = engine.forward(np.array([[tokens[-1]]]), np.array([[position]]), np.array([slot]))
        tokens.append(int(logits[0].argmax()))
    return tokens


def first(engine: NxdiEngine, prompt: list[int], slot: int) -> int:
    positions = np.arange(len(prompt))[None]
    return int(engine.forward(np.array([prompt]), positions, np.array([slot]))[0].argmax())


def together(engine: NxdiEngine, slots: list[int]) -> list[list[int]]:
    rows = [[first(engine, p, s)] for p, s in zip(PROMPTS, slots, strict=False)]
    for _ in range(NEW - 1):
        ids = np.array([[row[-1]] for row in rows])
        at = np.array([[len(p) + len(r) - 1] for p, r in zip(PROMPTS, rows, strict=False)])
        for row, logits in zip(rows, engine.forward(ids, at, np.array(slots)), strict=True):
            row.append(int(logits.argmax()))
    return rows


@pytest.mark.parametrize("name", FAMILIES)
def test_greedy_tokens_are_transformers(name: str, tmp_path: Path) -> None:
    wanted = made(name, tmp_path / "made")
    engine = opened(name, tmp_path / "made", tmp_path, batch=1)
    try:
        assert [alone(engine, prompt) for prompt in PROMPTS] == wanted
    finally:
        engine.close()


@pytest.mark.parametrize("name", ["LlamaForCausalLM", "Qwen3ForCausalLM"])
@pytest.mark.parametrize("slots", [[0, 1, 2, 3], [3, 0, 2, 1], [1, 3, 0, 2]], ids=str)
def test_rows_in_any_order_of_slots(name: str, slots: list[int], tmp_path: Path) -> None:
    wanted = made(name, tmp_path / "made")
    engine = opened(name, tmp_path / "made", tmp_path, batch=4)
    try:
        assert together(engine, slots) == wanted
        assert alone(engine, PROMPTS[2], slots[1]) == wanted[2]  # a slot that others have left
    finally:
        engine.close()


def test_the_model_asked_for_is_the_one_that_answers(tmp_path: Path) -> None:
    """Two fine-tunes share a program; the first one's checkpoint is where it was."""
    name = "LlamaForCausalLM"
    first_tokens = made(name, tmp_path / "a", seed=1)
    second_tokens = made(name, tmp_path / "b", seed=2)
    assert first_tokens != second_tokens
    for model, wanted in (("a", first_tokens), ("b", second_tokens)):
        engine = opened(name, tmp_path / model, tmp_path / f"run-{model}", batch=1)
        try:
            assert alone(engine, PROMPTS[0]) == wanted[0]
        finally:
            engine.close()


def test_config_of_transformers_5_gives_the_same_tokens(tmp_path: Path) -> None:
    """`rope_parameters` and `dtype` are not known to the release that NxDI runs on."""
    name = "LlamaForCausalLM"
    rope = {
        "rope_type": "llama3",
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 64,
    }
    wanted = made(name, tmp_path / "made", rope_scaling=rope)
    path = tmp_path / "made" / "config.json"
    config = json.loads(path.read_text())
    theta, scaling = config.pop("rope_theta"), config.pop("rope_scaling")
    config["rope_parameters"] = {**scaling, "rope_theta": theta}
    config["dtype"] = config.pop("torch_dtype", config.get("dtype", "float32"))
    path.write_text(json.dumps(config))
    engine = opened(name, tmp_path / "made", tmp_path, batch=1)
    try:
        assert [alone(engine, prompt) for prompt in PROMPTS] == wanted
    finally:
        engine.close()


def test_what_a_program_cannot_take_is_said(tmp_path: Path) -> None:
    made("LlamaForCausalLM", tmp_path / "made")
    engine = opened("LlamaForCausalLM", tmp_path / "made", tmp_path, batch=1)
    try:
        with pytest.raises(RunError, match="slots"):
            engine.forward(np.array([[1], [2]]), np.array([[3], [4]]), np.array([0, 1]))
        with pytest.raises(RunError, match="beyond the compiled length"):
            engine.forward(np.array([[1]]), np.array([[64]]), np.array([0]))
        assert len(alone(engine, PROMPTS[0])) == NEW  # and it goes on
    finally:
        engine.close()
    with pytest.raises(RunError, match="drops"):
        opened("LlamaForCausalLM", tmp_path / "made", tmp_path / "x", batch=1, made_up=1)
