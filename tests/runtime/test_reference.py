"""The loop against transformers' own `generate`, on a tiny random Llama."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from neuroncompile.runtime.generate import Generator
from neuroncompile.runtime.requests import Request
from neuroncompile.runtime.sampling import SamplingParams
from neuroncompile.runtime.tokenizer import Tokenizer
from tests.runtime.conftest import VOCAB

torch = pytest.importorskip("torch")
SEQ_LEN = 48


class TransformersEngine:
    """A slot is a list of tokens; every step runs the whole of it through the reference."""

    name = "transformers"
    seq_len, max_context_length, vocab_size = SEQ_LEN, SEQ_LEN, VOCAB

    def __init__(self, model: Any, batch_size: int) -> None:
        self.model, self.batch_size = model, batch_size
        self.slots: list[list[int]] = [[] for _ in range(batch_size)]

    def forward(
        self,
        input_ids: NDArray[np.int64],
        position_ids: NDArray[np.int64],
        seq_ids: NDArray[np.int64],
        sampling_params: Any = None,
    ) -> NDArray[np.float32]:
        rows = []
        for ids, positions, slot in zip(input_ids, position_ids, seq_ids, strict=True):
            history = self.slots[slot]
            for token, position in zip(ids.tolist(), positions.tolist(), strict=True):
                history[position:] = [token]
            with torch.inference_mode():
                rows.append(self.model(torch.tensor([history])).logits[0, -1].numpy())
        return np.stack(rows)

    def close(self) -> None:
        pass


@pytest.fixture(scope="module")
def llama() -> Any:
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=VOCAB,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        initializer_range=0.3,
        max_position_embeddings=SEQ_LEN,
    )
    return LlamaForCausalLM(config).eval()  # type: ignore[no-untyped-call]


@pytest.mark.parametrize("batch_size", [1, 3])
def test_greedy_is_transformers_greedy(llama: Any, tokenizer: Tokenizer, batch_size: int) -> None:
    chance = random.Random(1)
    prompts = [[chance.randrange(2, VOCAB) for _ in range(n)] for n in (1, 17, 3, 40, 8)]
    eos: list[int] = []
    for stop in (False, True):
        expected = [
            llama.generate(
                torch.tensor([p]),
                attention_mask=torch.ones(1, len(p), dtype=torch.long),
                do_sample=False,
                max_length=SEQ_LEN,
                eos_token_id=eos or None,
                pad_token_id=0,
            )[0, len(p) :].tolist()
            for p in prompts
        ]
        requests = [Request(tuple(p), SamplingParams()) for p in prompts]
        done = Generator(TransformersEngine(llama, batch_size), tokenizer, eos).generate(requests)
        assert [list(c.tokens) for c in done] == expected
        assert ["stop" in c.finish_reason for c in done] == [
            bool(t) and t[-1] in eos for t in expected
        ]
        if not stop:
            assert [len(t) for t in expected] == [SEQ_LEN - len(p) for p in prompts]
            eos = [expected[0][3], expected[1][9], expected[4][5]]
