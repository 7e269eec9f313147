"""What a worker is told and where it is kept before a program is loaded."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from neuroncompile.errors import RunError
from neuroncompile.output import Output
from neuroncompile.pipeline.device import _bind, _ranks, load_order
from neuroncompile.pipeline.plan import make_plan
from neuroncompile.pipeline.request import BuildRequest
from neuroncompile.pipeline.stores import open_store
from neuroncompile.settings import load_settings


@pytest.fixture
def worker() -> Iterator[Any]:
    """A process that waits, where a worker has its own."""
    with subprocess.Popen(
        [sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE
    ) as process:
        yield SimpleNamespace(process=process)
        process.kill()


def ranks(view: Path, constructed: dict[str, Any], tp_degree: int = 4) -> int:
    (view / "constructed.json").write_text(json.dumps(constructed))
    return _ranks(cast(Any, SimpleNamespace(config={"tp_degree": tp_degree})), view)


def test_a_core_for_each_rank_that_was_constructed(tmp_path: Path) -> None:
    neuron = {"tp_degree": 4, "ep_degree": 2, "world_size": 8, "local_ranks_size": 8}
    assert ranks(tmp_path, {"neuron_config": neuron}) == 8
    assert ranks(tmp_path, {"text_config": {"neuron_config": neuron}, "neuron_config": {}}) == 8
    assert ranks(tmp_path, {"neuron_config": {}}) == 4
    assert ranks(tmp_path, {}, tp_degree=2) == 2


def test_a_worker_is_bound_to_what_is_near_and_allowed(
    worker: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    allowed = sorted(os.sched_getaffinity(0))
    _bind(worker, (1,), [allowed[0], 100_000], "0-3", Output())
    assert os.sched_getaffinity(worker.process.pid) == {allowed[0]}
    assert f"cores 0-3, bound to NUMA node 1 (CPUs {allowed[0]})" in capsys.readouterr().err


def test_nothing_near_binds_nothing(worker: Any, capsys: pytest.CaptureFixture[str]) -> None:
    for cpus in ((), (100_000,)):
        _bind(worker, (), cpus, "0", Output(verbosity=1))
        assert os.sched_getaffinity(worker.process.pid) == os.sched_getaffinity(0)
    assert "cores 0; not bound" in capsys.readouterr().err


# --- the order to load


FUSED = (
    "seq_len=64",
    "enable_fused_speculation=true",
    "speculation_length=5",
    "on_device_sampling_config.top_k=1",
)
PLACE = "neuronx_distributed_inference.models"


def ordered(tmp_path: Path, model: Path, constructed: dict[str, Any], **asked: Any) -> Any:
    """The order for a plan, and the neuron_config.json beside it."""
    settings = load_settings(store=tmp_path / "store", environ={"HOME": str(tmp_path)})
    plan = make_plan(
        BuildRequest(str(model), target="trn2", toolchain="sdk-2.29", **asked), settings
    )
    view, place = tmp_path / "view", tmp_path / "place"
    for directory in (view, place):
        directory.mkdir()
    (view / "model.pt").touch()
    (view / "constructed.json").write_text(json.dumps(constructed))
    with ExitStack() as held:
        order = load_order(
            plan,
            view,
            [model / "model.safetensors"],
            settings,
            Output(),
            open_store(settings),
            place,
            held,
        )
        return order, json.loads((Path(order["view"]) / "neuron_config.json").read_text())


def test_a_draft_is_loaded_in_its_own_class_and_config(llama: Path, tmp_path: Path) -> None:
    draft = tmp_path / "draft"
    shutil.copytree(llama, draft)
    own = {"architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2", "eos_token_id": 77}
    config = json.loads((draft / "config.json").read_text()) | own
    (draft / "config.json").write_text(json.dumps(config))
    speculation = {"draft_config": {"neuron_config": {}, "eos_token_id": 2}}
    order, written = ordered(
        tmp_path,
        llama,
        {"neuron_config": {}, "fused_spec_config": speculation},
        draft=str(draft),
        sets=FUSED,
    )
    assert order["class"] == f"{PLACE}.llama.modeling_llama:NeuronLlamaForCausalLM"
    assert order["draft"]["class"] == f"{PLACE}.qwen2.modeling_qwen2:NeuronQwen2ForCausalLM"
    assert Path(order["draft"]["model"], "model.safetensors").resolve() == (
        draft / "model.safetensors"
    )
    inner = written["fused_spec_config"]["draft_config"]
    assert inner["eos_token_id"] == 77
    assert inner["_name_or_path"] == order["draft"]["model"]


def test_a_class_of_the_users_own_is_loaded(llama: Path, tmp_path: Path) -> None:
    source = tmp_path / "mine.py"
    source.write_text("class Mine:\n    pass\n")
    named = {"__module__": "mine", "__name__": "Mine"}
    order, written = ordered(
        tmp_path,
        llama,
        {"neuron_config": {"attn_cls": named}},
        model_class=f"{source}:Mine",
        sets=("seq_len=64",),
    )
    assert order["class"] == f"{source}:Mine"
    assert written["neuron_config"]["attn_cls"] == named


def test_quantised_weights_that_were_not_made_are_named(llama: Path, tmp_path: Path) -> None:
    sets = (
        "seq_len=64",
        "quantized=true",
        "quantization_dtype=int8",
        "quantization_type=per_tensor_symmetric",
    )
    with pytest.raises(RunError, match="takes quantised weights") as caught:
        ordered(tmp_path, llama, {"neuron_config": {}}, sets=sets)
    assert "--shard" in str(caught.value.hint)
