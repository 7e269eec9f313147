"""Compiled programs against transformers: the same tokens, and logits within float32's noise."""

from __future__ import annotations

import itertools
import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedModel

from neuroncompile.backends.cpu.compile import compile_graphs
from neuroncompile.backends.cpu.engine import CpuEngine, load
from neuroncompile.backends.cpu.identity import identity
from neuroncompile.backends.cpu.program import graphs_of, program_of
from neuroncompile.errors import ModelError, PromptTooLongError, RunError
from neuroncompile.hardware.targets import parse_target
from neuroncompile.keys import compile_spec
from neuroncompile.models.architecture import normalise

BATCH, SEQ_LEN, CONTEXT = 3, 72, [16, 32, 64]
EDGES = (1, 15, 16, 17, 31, 32, 33, 63, 64)
STEPS = 8

TOLERANCE = 2e-5
"""Largest difference of a logit; they reach 4, and at most 5e-6 is what is measured."""

TINY: dict[str, Any] = {
    "vocab_size": 101,
    "hidden_size": 48,
    "intermediate_size": 80,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 128,
    "rms_norm_eps": 1e-6,
    "pad_token_id": None,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 10000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 16,
}
LINEAR = {"rope_type": "linear", "rope_theta": 10000.0, "factor": 4.0}


@dataclass(frozen=True)
class Case:
    """One program, and the checkpoint it runs."""

    model_type: str
    config: Mapping[str, Any] = field(default_factory=dict)
    dtype: str = "float32"
    optlevel: str = "1"
    generation: tuple[int, ...] = (SEQ_LEN,)
    context: tuple[int, ...] = tuple(CONTEXT)


CASES = {
    "llama": Case("llama", {"tie_word_embeddings": True}, generation=(16, 32, SEQ_LEN)),
    "mistral": Case("mistral", {"sliding_window": 9, "head_dim": 12}),
    "qwen2": Case("qwen2"),
    "qwen3": Case("qwen3", {"head_dim": 16}),
    "linear": Case("llama", {"rope_parameters": LINEAR}),
    "llama3": Case("llama", {"rope_parameters": LLAMA3}),
    "whole": Case("llama", optlevel="2", context=(32,)),
    "bfloat16": Case("llama", dtype="bfloat16", context=(32,)),
    "float16": Case("llama", dtype="float16", context=(32,)),
}
FAMILIES = ("llama", "mistral", "qwen2", "qwen3")


@dataclass
class Built:
    """A case's model for transformers, its files, and its program."""

    model: PreTrainedModel
    weights: list[Path]
    view: Path


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory, machine_cache: Path) -> dict[str, Built]:
    """Every case, compiled together: equal graphs once."""
    root = tmp_path_factory.mktemp("engine")
    models = {name: checkpoint(case, root / name) for name, case in CASES.items()}
    specs = {name: spec(case, root / name) for name, case in CASES.items()}
    graphs = {g.key: g for s in specs.values() for g in graphs_of(s)}
    done: dict[str, Path] = {}
    compiling = compile_graphs(list(graphs.values()), scratch=root / "scratch", cache=machine_cache)
    for graph, files in compiling:
        done[graph.key] = root / "graphs" / graph.key[:16]
        done[graph.key].mkdir(parents=True)
        for file in files:
            shutil.copy(file.path, done[graph.key] / file.title)
    result = {}
    for name in CASES:
        view = root / name / "view"
        (view / "graphs").mkdir(parents=True)
        (view / "program.json").write_text(json.dumps(program_of(specs[name])))
        for graph in graphs_of(specs[name]):
            (view / "graphs" / graph.key[:16]).symlink_to(done[graph.key])
        result[name] = Built(models[name], sorted((root / name).glob("*.safetensors")), view)
    return result


@pytest.fixture
def engine(built: dict[str, Built]) -> Iterator[Callable[[str], CpuEngine]]:
    """Loads a case's engine, closed after the test."""
    engines: list[CpuEngine] = []

    def open_engine(name: str) -> CpuEngine:
        engines.append(load(built[name].view, built[name].weights))
        return engines[-1]

    yield open_engine
    for one in engines:
        one.close()


def checkpoint(case: Case, directory: Path) -> PreTrainedModel:
    """A random model whose every parameter matters, saved as two shards, reread in float32."""
    torch.manual_seed(20)
    config = AutoConfig.for_model(case.model_type, **{**TINY, **case.config})
    model = AutoModelForCausalLM.from_config(config)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.normal_(float("norm" in name), 0.15)
    model.to(getattr(torch, case.dtype)).save_pretrained(directory, max_shard_size="120KB")
    return AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32).eval()


def spec(case: Case, directory: Path) -> dict[str, Any]:
    return compile_spec(
        backend="cpu",
        model=normalise(json.loads((directory / "config.json").read_text())),
        neuron={
            "batch_size": BATCH,
            "ctx_batch_size": 1,
            "tkg_batch_size": BATCH,
            "seq_len": SEQ_LEN,
            "max_context_length": max(case.context),
            "context_encoding_buckets": list(case.context),
            "token_generation_buckets": list(case.generation),
            "torch_dtype": case.dtype,
        },
        compiler={"args": [], "env": {}},
        optlevel=case.optlevel,
        target=parse_target("cpu").spec(),
        toolchain=identity(),
    )


def prompt(length: int, seed: int = 0) -> list[int]:
    return [int(t) for t in np.random.default_rng([length, seed]).integers(3, 101, length)]


def reference(model: PreTrainedModel, tokens: Sequence[int], steps: int) -> NDArray[np.float32]:
    """transformers' greedy continuation: the logits of each step, [steps, vocabulary]."""
    ids, rows = list(tokens), []
    with torch.no_grad():
        for _ in range(steps):
            rows.append(model(torch.tensor([ids]), use_cache=False).logits[0, -1].numpy())
            ids.append(int(rows[-1].argmax()))
    return np.stack(rows)


def encode(engine: CpuEngine, prompts: Mapping[int, Sequence[int]]) -> NDArray[np.float32]:
    """Context encoding of prompts by slot, padded to the longest, in the mapping's order."""
    longest = max(map(len, prompts.values()))
    ids = np.zeros((len(prompts), longest), np.int64)
    positions = np.full_like(ids, -1)
    for row, tokens in enumerate(prompts.values()):
        ids[row, : len(tokens)] = tokens
        positions[row, : len(tokens)] = np.arange(len(tokens))
    return engine.forward(ids, positions, np.array(list(prompts)))


def decode(
    engine: CpuEngine, prompts: Mapping[int, Sequence[int]], steps: int
) -> NDArray[np.float32]:
    """Greedy decoding of all prompts side by side: logits [steps, rows, vocabulary]."""
    slots = np.array(list(prompts))
    at = np.array([len(tokens) for tokens in prompts.values()])
    rows = [encode(engine, prompts)]
    for step in range(steps - 1):
        ids = rows[-1].argmax(-1)[:, None]
        rows.append(engine.forward(ids, (at + step)[:, None], slots))
    return np.stack(rows)


def assert_equal(found: NDArray[np.float32], expected: NDArray[np.float32]) -> None:
    assert found.argmax(-1).tolist() == expected.argmax(-1).tolist()
    assert np.abs(found - expected).max() < TOLERANCE


@pytest.mark.parametrize("name", FAMILIES)
def test_tokens_equal_transformers_around_every_bucket_edge(
    name: str, built: dict[str, Built], engine: Callable[[str], CpuEngine]
) -> None:
    loaded = engine(name)
    for length in EDGES:
        tokens = prompt(length)
        expected = reference(built[name].model, tokens, STEPS)
        assert_equal(decode(loaded, {1: tokens}, STEPS)[:, 0], expected)


@pytest.mark.parametrize("name", ["linear", "llama3"])
def test_scaled_rope_equals_transformers_past_the_original_context(
    name: str, built: dict[str, Built], engine: Callable[[str], CpuEngine]
) -> None:
    plain = reference(built["llama"].model, prompt(60), STEPS)
    expected = reference(built[name].model, prompt(60), STEPS)
    assert np.abs(plain - expected).max() > 0.01  # the scaling is not lost on this prompt
    assert_equal(decode(engine(name), {0: prompt(60)}, STEPS)[:, 0], expected)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_rounded_weights_equal_transformers_in_float32_on_the_same_weights(
    built: dict[str, Built], engine: Callable[[str], CpuEngine], dtype: str
) -> None:
    expected = reference(built[dtype].model, prompt(20), STEPS)
    assert_equal(decode(engine(dtype), {2: prompt(20)}, STEPS)[:, 0], expected)


def test_whole_graphs_equal_transformers(
    built: dict[str, Built], engine: Callable[[str], CpuEngine]
) -> None:
    loaded = engine("whole")
    for length in (1, 31, 32):
        expected = reference(built["whole"].model, prompt(length), STEPS)
        assert_equal(decode(loaded, {1: prompt(length)}, STEPS)[:, 0], expected)


@pytest.mark.parametrize("name", ["mistral", "whole"])
def test_a_row_does_not_depend_on_its_slot_or_its_neighbours(
    name: str, built: dict[str, Built], engine: Callable[[str], CpuEngine]
) -> None:
    prompts = [prompt(5, 1), prompt(17, 2), prompt(30, 3)]
    expected = np.stack([reference(built[name].model, p, 4) for p in prompts], 1)
    loaded = engine(name)
    for slots in itertools.permutations(range(BATCH)):
        found = decode(loaded, dict(zip(slots, prompts, strict=True)), 4)
        assert_equal(found, expected)
    for slot, other in itertools.permutations(range(BATCH), 2):
        found = decode(loaded, {slot: prompts[2], other: prompts[0]}, 4)
        assert_equal(found, expected[:, [2, 0]])


def test_steps_of_other_rows_leave_a_waiting_slot_alone(
    built: dict[str, Built], engine: Callable[[str], CpuEngine]
) -> None:
    loaded, waiting, running = engine("llama"), prompt(9, 1), prompt(12, 2)
    expected = reference(built["llama"].model, waiting, 2)
    first = encode(loaded, {0: waiting})
    decode(loaded, {2: running}, STEPS)
    decode(loaded, {1: running}, STEPS)
    second = loaded.forward(first.argmax(-1)[:, None], np.array([[9]]), np.array([0]))
    assert_equal(np.concatenate([first, second]), expected)


def test_a_slot_forgets_its_last_sequence(
    built: dict[str, Built], engine: Callable[[str], CpuEngine]
) -> None:
    loaded = engine("llama")
    decode(loaded, {1: prompt(60)}, STEPS)
    expected = reference(built["llama"].model, prompt(2), STEPS)
    assert_equal(decode(loaded, {1: prompt(2)}, STEPS)[:, 0], expected)


def test_decoding_reaches_the_last_position_and_no_further(
    built: dict[str, Built], engine: Callable[[str], CpuEngine]
) -> None:
    loaded, steps = engine("llama"), SEQ_LEN - 64 + 1
    expected = reference(built["llama"].model, prompt(64), steps)
    assert_equal(decode(loaded, {0: prompt(64)}, steps)[:, 0], expected)
    with pytest.raises(RunError, match=f"position {SEQ_LEN} is past"):
        loaded.forward(np.array([[5]]), np.array([[SEQ_LEN]]), np.array([0]))


def test_a_prompt_too_long_is_refused_with_both_numbers_and_nothing_is_run(
    built: dict[str, Built], engine: Callable[[str], CpuEngine]
) -> None:
    loaded = engine("llama")
    first = encode(loaded, {0: prompt(9)})
    with pytest.raises(PromptTooLongError, match=r"65 tokens.*64") as error:
        encode(loaded, {0: prompt(9, 7), 1: prompt(65)})
    assert error.value.details == {"tokens": 65, "max_context_length": 64}
    again = loaded.forward(first.argmax(-1)[:, None], np.array([[9]]), np.array([0]))
    assert_equal(again, reference(built["llama"].model, prompt(9), 2)[1:])


@pytest.mark.parametrize(
    ("ids", "positions", "slots"),
    [
        ([[5]], [[0]], [BATCH]),
        ([[5], [5]], [[0], [0]], [1, 1]),
        ([[101]], [[0]], [0]),
        ([[-1]], [[0]], [0]),
        ([[5, 6]], [[0, 2]], [0]),
        ([[5, 6]], [[3, 4]], [0]),
        ([[5]] * 4, [[0]] * 4, [0, 1, 2, 3]),
    ],
)
def test_calls_that_no_graph_was_compiled_for_are_refused(
    ids: list[list[int]],
    positions: list[list[int]],
    slots: list[int],
    engine: Callable[[str], CpuEngine],
) -> None:
    with pytest.raises(RunError):
        engine("llama").forward(np.array(ids), np.array(positions), np.array(slots))


def test_equal_layers_share_a_graph_whatever_their_number() -> None:
    llama = Case("llama")
    config = AutoConfig.for_model("llama", **TINY).to_dict()
    deeper = {**config, "num_hidden_layers": 7, "vocab_size": 77, "rope_parameters": LINEAR}

    def layers(model: Mapping[str, Any]) -> set[str]:
        neuron = {
            "batch_size": BATCH,
            "seq_len": SEQ_LEN,
            "context_encoding_buckets": [32],
            "token_generation_buckets": [SEQ_LEN],
            "torch_dtype": llama.dtype,
        }
        made = compile_spec(
            backend="cpu",
            model=normalise(model),
            neuron=neuron,
            compiler={"args": [], "env": {}},
            optlevel="1",
            target=parse_target("cpu").spec(),
            toolchain=identity(),
        )
        return {g.key for g in graphs_of(made) if g.region == "layer"}

    assert layers(config) == layers(deeper)
    assert len(layers(config)) == 2


def test_the_engine_imports_neither_torch_nor_transformers(built: dict[str, Built]) -> None:
    case = built["llama"]
    code = f"""
import sys
import numpy as np
from pathlib import Path
from neuroncompile.backends.cpu.engine import load
engine = load(Path({str(case.view)!r}), [Path(p) for p in {[str(p) for p in case.weights]!r}])
logits = engine.forward(np.array([[5, 6, 7]]), np.array([[0, 1, 2]]), np.array([0]))
engine.close()
loaded = {{"torch", "transformers", "safetensors", "tokenizers"}} & set(sys.modules)
assert not loaded, loaded
print(logits[0].argmax())
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    expected = reference(case.model, [5, 6, 7], 1)[0]
    assert int(done.stdout) == int(expected.argmax())


def test_a_program_of_another_torch_is_refused_with_both_versions(
    built: dict[str, Built], tmp_path: Path
) -> None:
    program = json.loads((built["llama"].view / "program.json").read_text())
    program["toolchain"]["torch"] = "2.9.0"
    (tmp_path / "program.json").write_text(json.dumps(program))
    with pytest.raises(RunError, match=r"2\.9\.0.*" + torch.__version__[:6]) as error:
        load(tmp_path, built["llama"].weights)
    assert "leave --toolchain" in (error.value.hint or "")


def test_a_missing_tensor_is_named(built: dict[str, Built]) -> None:
    case = built["qwen2"]
    for left_out in range(len(case.weights)):
        some = [p for i, p in enumerate(case.weights) if i != left_out]
        with pytest.raises(ModelError, match=r"\.weight|\.bias"):
            load(case.view, some)


def test_weights_of_another_model_are_refused_by_shape(built: dict[str, Built]) -> None:
    with pytest.raises(ModelError, match=r"k_proj\.weight has shape \[32, 48\].*\[24, 48\]"):
        load(built["llama"].view, built["qwen3"].weights)


def test_a_checkpoint_in_another_dtype_is_cast(built: dict[str, Built]) -> None:
    exact = load(built["bfloat16"].view, built["bfloat16"].weights)
    cast = load(built["bfloat16"].view, built["whole"].weights)
    try:
        assert_equal(encode(cast, {0: prompt(7)}), encode(exact, {0: prompt(7)}))
    finally:
        exact.close()
        cast.close()
