"""The engine over a real worker process: order of rows, padding, masks, and what is refused."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from neuroncompile.backends.nxdi.engine import NxdiEngine
from neuroncompile.backends.nxdi.process import Limits, Worker
from neuroncompile.errors import PromptTooLongError, RunError
from neuroncompile.runtime.generate import Generator
from neuroncompile.runtime.requests import Request
from neuroncompile.runtime.sampling import SamplingParams
from neuroncompile.runtime.tokenizer import Tokenizer
from tests.conftest import write_tokenizer
from tests.standins.toolchain import SDK

CONFIG = {"hidden_size": 8, "num_attention_heads": 2, "vocab_size": 50, "model_type": "llama"}
Opened = Callable[..., tuple[NxdiEngine, Callable[[], list[dict[str, Any]]]]]


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Opened]:
    engines = []

    def call(**more: Any) -> tuple[NxdiEngine, Callable[[], list[dict[str, Any]]]]:
        (tmp_path / "config.json").write_text(json.dumps(CONFIG))
        worker = Worker(
            sys.executable,
            environment={"PATH": os.defpath, "PYTHONPATH": str(SDK), "LC_ALL": "C.UTF-8"},
            directory=tmp_path,
            log=tmp_path / "log",
            limits=Limits(seconds=120),
        )
        neuron = {
            "batch_size": 4,
            "ctx_batch_size": 1,
            "seq_len": 32,
            "max_context_length": 16,
            "context_encoding_buckets": [8, 16],
            **more,
        }
        source = Path(__file__).with_name("recorder.py")
        order = {
            "class": f"{source}:Recorder",
            "model": str(tmp_path),
            "neuron": neuron,
            "cpu": True,
        }
        engine = NxdiEngine(worker, order, "recorder")
        engines.append(engine)

        def calls() -> list[dict[str, Any]]:
            return [json.loads(row) for row in (tmp_path / "calls.jsonl").read_text().splitlines()]

        return engine, calls

    yield call
    for engine in engines:
        engine.close()


def rows(*values: Any) -> Any:
    return np.array(values, dtype=np.int64)


def test_rows_go_in_the_order_of_slots_and_come_back(opened: Opened) -> None:
    engine, calls = opened()
    assert (engine.batch_size, engine.seq_len, engine.vocab_size) == (4, 32, 50)
    out = engine.forward(rows([7], [8], [9]), rows([3], [5], [4]), rows(2, 0, 1))
    assert out.argmax(axis=1).tolist() == [27, 8, 19]
    (call,) = calls()
    assert call["seq_ids"] == [0, 1, 2]
    assert call["input_ids"] == [[8], [9], [7]]
    assert call["position_ids"] == [[5], [4], [3]]
    assert call["attention_mask"] is None  # NxDI then shows a row its earlier positions alone


def test_prompts_are_encoded_row_by_row_without_their_padding(opened: Opened) -> None:
    engine, calls = opened()
    ids = rows([1, 2, 3], [4, 5, 0])
    out = engine.forward(ids, rows([0, 1, 2], [0, 1, -1]), rows(3, 1))
    assert out.argmax(axis=1).tolist() == [36, 19]
    first, second = calls()
    assert (first["seq_ids"], first["input_ids"]) == ([1], [[4, 5]])
    assert (second["seq_ids"], second["input_ids"]) == ([3], [[1, 2, 3]])
    assert second["attention_mask"] == [[1, 1, 1]]


def test_prompt_of_one_token_fills_its_bucket_with_position_0(opened: Opened) -> None:
    """NxDI pads positions with 1, and takes the token at the largest one."""
    engine, calls = opened()
    out = engine.forward(rows([7]), rows([0]), rows(0))
    assert out.argmax(axis=1).tolist() == [7]
    (call,) = calls()
    assert call["input_ids"] == [[7, 0, 0, 0, 0, 0, 0, 0]]
    assert call["position_ids"] == [[0] * 8]
    assert call["attention_mask"] == [[1, 0, 0, 0, 0, 0, 0, 0]]


def test_tokens_of_a_program_that_samples(opened: Opened) -> None:
    engine, calls = opened(on_device_sampling_config={"dynamic": True})
    assert engine.samples
    params = np.array([[1, 1, 1], [5, 0.5, 2]], np.float32)
    out = engine.forward(rows([7], [8]), rows([3], [5]), rows(1, 0), params)
    assert out.dtype == np.int64
    assert out.tolist() == [17, 8]
    (call,) = calls()
    assert call["sampling_params"] == [[5, 0.5, 2], [1, 1, 1]]  # with their rows


REFUSED = (
    (rows([1], [2]), rows([3], [3]), rows(1, 1), "not different"),
    (rows([1]), rows([3]), rows(4), "not different"),
    (rows([1]), rows([3]), rows(-1), "not different"),
    (rows(*[[1]] * 5), rows(*[[3]] * 5), rows(0, 1, 2, 3, 4), "5 rows"),
    (rows([1], [2]), rows([0], [3]), rows(0, 1), "not mixed"),
    (rows([1]), rows([32]), rows(0), "beyond the compiled length"),
    (rows([1, 2]), rows([3, 4]), rows(0), "one token"),
    (rows([1, 2]), rows([3]), rows(0), "shapes"),
)


def test_what_is_no_step_is_refused(opened: Opened) -> None:
    engine, _ = opened()
    for ids, positions, slots, match in REFUSED:
        with pytest.raises(RunError, match=match):
            engine.forward(ids, positions, slots)
    with pytest.raises(PromptTooLongError):
        engine.forward(rows([1] * 17), rows(list(range(17))), rows(0))
    assert engine.forward(rows([1]), rows([3]), rows(0)).shape == (1, 50)


def test_device_that_fails_is_a_run_error(opened: Opened) -> None:
    engine, _ = opened()
    with pytest.raises(RunError, match="status=101") as caught:
        engine.forward(rows([99]), rows([3]), rows(0))
    assert caught.value.exit_code == 10
    engine.close()
    engine.close()


def test_last_words_of_a_worker_that_dies_are_told(opened: Opened) -> None:
    """Its log is among what goes when the program is closed."""
    engine, _ = opened()
    with pytest.raises(RunError, match="status 3, last saying: nrt_init failed") as caught:
        engine.forward(rows([98]), rows([3]), rows(0))
    assert caught.value.details["last_lines"][-1] == "nrt_init failed"


def test_the_loop_decodes_on_it(opened: Opened, tmp_path: Path) -> None:
    """Batch, slots and sampler by the decoding loop, as on cpu."""
    (tmp_path / "tokenizer").mkdir()
    write_tokenizer(tmp_path / "tokenizer")
    engine, calls = opened()
    requests = [Request(p, SamplingParams(max_new_tokens=3)) for p in ((1, 2), (3,), (4, 5, 6))]
    done = Generator(engine, Tokenizer(tmp_path / "tokenizer"), ()).generate(requests)
    # slots 0, 1, 2; each token is the last one plus ten times the slot
    assert [c.tokens for c in done] == [(3, 3, 3), (13, 23, 33), (35, 5, 25)]
    assert [len(call["seq_ids"]) for call in calls()] == [1, 1, 1, 3, 3]
