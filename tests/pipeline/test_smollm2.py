"""The real small model: the same greedy tokens as transformers, together and one by one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import neuroncompile
from neuroncompile.pipeline.session import Session
from neuroncompile.runtime.generate import Generator
from neuroncompile.runtime.requests import Request
from neuroncompile.runtime.sampling import SamplingParams

pytestmark = pytest.mark.model

CONFIG = {
    "torch_dtype": "float32",
    "batch_size": 3,
    "seq_len": 256,
    "max_context_length": 128,
    "context_encoding_buckets": [128],
    "token_generation_buckets": [256],
}
TEXTS = [
    "Once upon a time, in a small village by the sea,",
    "def fibonacci(n):\n    ",
    "The three most important things about rivers are",
]
NEW = 64


def test_greedy_tokens_equal_transformers(smollm2_store: Path) -> None:
    with neuroncompile.load("smollm2-135m", config=CONFIG, store=str(smollm2_store)) as program:
        session = program._session
        asked = [
            Request(tuple(session.tokenizer.encode(text)), SamplingParams(max_new_tokens=NEW))
            for text in TEXTS
        ]
        model = reference(session)
        wanted = [generate(model, request) for request in asked]
        assert [len(tokens) for tokens in wanted] == [NEW] * 3
        generator = Generator(session.engine, session.tokenizer, ())
        assert [c.tokens for c in generator.generate(asked)] == wanted
        assert [generator.generate([request])[0].tokens for request in asked] == wanted


def reference(session: Session) -> Any:
    """transformers' Llama with the packed float32 weights, which `tests/models` compares."""
    from safetensors.torch import load_file
    from transformers import LlamaConfig, LlamaForCausalLM

    from neuroncompile.output import Output
    from neuroncompile.pipeline.sharing import Tiers
    from neuroncompile.pipeline.weights import weight_files

    plan = session.built.plan
    output = Output(quiet=True)
    [path] = weight_files(plan, session.settings, output, Tiers(session.settings, output)).paths
    model = LlamaForCausalLM(LlamaConfig(**plan.model.config)).float().eval()
    missing = model.load_state_dict(load_file(path), strict=False).missing_keys
    assert missing in ([], ["lm_head.weight"])
    model.tie_weights()
    model.generation_config.eos_token_id = None
    return model


def generate(model: Any, request: Request) -> tuple[int, ...]:
    ids = torch.tensor([request.prompt_ids])
    out = model.generate(
        ids,
        attention_mask=torch.ones_like(ids),
        max_new_tokens=NEW,
        do_sample=False,
        pad_token_id=0,
    )
    return tuple(out[0, ids.shape[1] :].tolist())
