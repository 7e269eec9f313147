"""An engine whose logits depend on everything a slot was fed, and a byte-level tokenizer."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from tokenizers import Tokenizer as Fast
from tokenizers import decoders, models, pre_tokenizers, processors, trainers

from neuroncompile.errors import PromptTooLongError
from neuroncompile.runtime.tokenizer import Tokenizer

VOCAB = 300


class HistoryEngine:
    """A real model of sorts: logits are a hash of the slot's tokens and their positions.

    Feeding a token to the wrong slot or at the wrong position changes every later answer. The
    scratch of other slots is checked to stay out of sight: a fresh prompt clears its slot only.
    """

    name = "history"

    def __init__(self, batch_size: int = 4, seq_len: int = 64, max_context_length: int = 32):
        self.batch_size, self.seq_len = batch_size, seq_len
        self.max_context_length, self.vocab_size = max_context_length, VOCAB
        self.slots: list[dict[int, int]] = [{} for _ in range(batch_size)]
        self.calls: list[tuple[str, int]] = []
        self.closed = False

    def forward(
        self,
        input_ids: NDArray[np.int64],
        position_ids: NDArray[np.int64],
        seq_ids: NDArray[np.int64],
        sampling_params: Any = None,
    ) -> NDArray[np.float32]:
        context = bool((position_ids[:, 0] == 0).all())
        self.calls.append(("context" if context else "token", len(seq_ids)))
        assert len(set(seq_ids.tolist())) == len(seq_ids) <= self.batch_size
        if context and input_ids.shape[1] > self.max_context_length:
            raise PromptTooLongError("too long")
        if not context:
            assert input_ids.shape[1] == 1
            assert list(seq_ids) == sorted(seq_ids), "rows are fed in slot order"
        rows = []
        for ids, positions, slot in zip(input_ids, position_ids, seq_ids, strict=True):
            cache = self.slots[slot]
            if context:
                cache.clear()
            for token, position in zip(ids, positions, strict=True):
                assert 0 <= position < self.seq_len
                cache[int(position)] = int(token)
            last = int(positions.max())
            seen = [cache[p] for p in range(last + 1)]  # KeyError: a position was skipped
            rows.append(np.random.default_rng([last, *seen]).normal(size=VOCAB) * 3)
        return np.array(rows, dtype=np.float32)

    def close(self) -> None:
        self.closed = True


def byte_level() -> Fast:
    fast = Fast(models.BPE())
    fast.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    fast.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCAB,
        special_tokens=["<s>", "</s>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    fast.train_from_iterator(["the cat sat on the mat, the end"] * 3, trainer)
    fast.post_processor = processors.TemplateProcessing(
        single="<s> $A", special_tokens=[("<s>", 0)]
    )
    return fast


@pytest.fixture(scope="session")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    directory = tmp_path_factory.mktemp("tokenizer")
    byte_level().save(str(directory / "tokenizer.json"))
    (directory / "tokenizer_config.json").write_text(
        json.dumps({"bos_token": {"content": "<s>"}, "eos_token": "</s>"})
    )
    return Tokenizer(Path(directory))
