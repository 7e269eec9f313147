"""`neuron_config.json` for one model, and what is kept of it, in the shape NxDI 0.9 writes.

The marked test has NxDI's own sources write and read it: NEURONCOMPILE_NXDI_SOURCES is a
PATH-like list (NxDI, NxD, stand-ins for the closed packages), NEURONCOMPILE_NXDI_PYTHON an
interpreter with transformers 4.57.
"""

from __future__ import annotations

import json
import math
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from neuroncompile.backends.nxdi.inference_config import for_model, without_places
from neuroncompile.errors import TrustError

LLAMA = {
    "__module__": "neuronx_distributed_inference.models.llama.modeling_llama",
    "__name__": "NeuronLlamaModel",
}


def constructed(**more: Any) -> dict[str, Any]:
    """As NxDI 0.9's to_json_string has it, parsed, for model A on the host that built."""
    return {
        "_name_or_path": "/build/host/a",
        "transformers_version": "4.57.6",
        "eos_token_id": 2,
        "hidden_size": 64,
        "metadata": None,
        "fused_spec_config": None,
        "neuron_config": {
            "tp_degree": 2,
            "quantized": False,
            "quantized_checkpoints_path": "/build/host/q",
            "quantize_clamp_bound": math.inf,
            "save_sharded_checkpoint": False,
            "skip_sharding": True,
            "lora_config": {"max_loras": 1, "lora_ckpt_paths": {"x": "/build/host/x"}},
        },
        **more,
    }


def fused(worker: dict[str, Any] = LLAMA) -> dict[str, Any]:
    draft = constructed(_name_or_path="/build/host/draft", eos_token_id=5)
    return constructed(
        fused_spec_config={
            "worker_cls": worker,
            "draft_model_cls": None,
            "draft_model_path": "/build/host/draft",
            "draft_config": draft,
        }
    )


def written(kept: dict[str, Any], /, **more: Any) -> dict[str, Any]:
    options: dict[str, Any] = {
        "path": "/serve/b",
        "config": {"eos_token_id": [1, 9], "hidden_size": 999, "dtype": "float32"},
        "transformers": "4.57.6",
        "sharded": False,
        **more,
    }
    result: dict[str, Any] = json.loads(for_model(without_places(kept), **options))
    return result


def test_nothing_of_the_building_host_is_kept() -> None:
    text = json.dumps(without_places(fused()), allow_nan=False)
    assert "/build/host" not in text
    assert "4.57.6" not in text
    kept = json.loads(text)
    assert kept["neuron_config"]["quantize_clamp_bound"] == "Infinity"
    assert kept["fused_spec_config"]["worker_cls"] == LLAMA


@pytest.mark.parametrize("value", [math.inf, -math.inf])
def test_numbers_come_back_as_the_vendor_writes_them(value: float) -> None:
    config = constructed()
    config["neuron_config"]["quantize_clamp_bound"] = value
    assert written(config)["neuron_config"]["quantize_clamp_bound"] == value


def test_model_b_gets_its_own_ids_and_keeps_the_programs_sizes() -> None:
    result = written(constructed())
    assert result["_name_or_path"] == "/serve/b"
    assert result["eos_token_id"] == [1, 9]
    assert result["hidden_size"] == 64
    assert "dtype" not in result
    assert result["transformers_version"] == "4.57.6"


@pytest.mark.parametrize("sharded", [True, False])
def test_where_weights_come_from(sharded: bool) -> None:
    neuron = written(constructed(), sharded=sharded, quantized="/serve/q")["neuron_config"]
    assert neuron["save_sharded_checkpoint"] is sharded
    assert neuron["skip_sharding"] is False
    assert neuron["quantized_checkpoints_path"] == "/serve/q"


def test_draft_has_its_own_place_and_ids() -> None:
    result = written(fused(), draft="/serve/d", draft_config={"eos_token_id": 7})
    speculation = result["fused_spec_config"]
    assert speculation["draft_model_path"] == "/serve/d"
    assert speculation["draft_config"]["_name_or_path"] == "/serve/d"
    assert speculation["draft_config"]["eos_token_id"] == 7
    assert speculation["worker_cls"] == LLAMA
    assert result["eos_token_id"] == [1, 9]


def test_both_parts_of_an_image_model_name_the_model() -> None:
    parts = {"text_config": constructed(), "vision_config": constructed()}
    result = written(constructed(**parts), config={"text_config": {"eos_token_id": 3}})
    for name in parts:
        assert result[name]["_name_or_path"] == "/serve/b"
        assert result[name]["neuron_config"]["quantized_checkpoints_path"] is None
    assert result["text_config"]["eos_token_id"] == 3
    assert result["vision_config"]["eos_token_id"] == 2


@pytest.mark.parametrize(
    "worker",
    [
        {"__module__": "os", "__name__": "system"},
        {"__module__": "neuronx_distributed_inference_", "__name__": "X"},
        {"__module__": None, "__name__": "X"},
        {"__name__": "system"},
    ],
)
def test_data_chooses_no_class(worker: dict[str, Any]) -> None:
    with pytest.raises(TrustError):
        written(fused(worker))
    draft = fused()
    draft["fused_spec_config"]["draft_model_cls"] = worker
    with pytest.raises(TrustError):
        written(draft)
    deep = constructed(metadata={"list": [{"inner": worker}]})
    with pytest.raises(TrustError):
        written(deep)


SOURCES = os.environ.get("NEURONCOMPILE_NXDI_SOURCES", "")
PYTHON = os.environ.get("NEURONCOMPILE_NXDI_PYTHON", "")

VENDOR = """
import json, sys
import closed_packages; closed_packages.install()
from neuronx_distributed_inference.models.config import FusedSpecNeuronConfig
from neuronx_distributed_inference.models.llama.modeling_llama import NeuronLlamaForCausalLM as L
from neuronx_distributed_inference.utils.hf_adapter import load_pretrained_config
Config, Neuron = L.get_config_cls(), L.get_neuron_config_cls()
if sys.argv[1] == "write":
    asked = dict(seq_len=64, tp_degree=1, torch_dtype="float32", attn_kernel_enabled=False)
    def make(**more):
        neuron = Neuron(**asked, **more)
        return Config(neuron, load_config=load_pretrained_config(sys.argv[2]))
    config = make(enable_fused_speculation=True, speculation_length=3)
    config.fused_spec_config = FusedSpecNeuronConfig(
        L._model_cls, draft_config=make(), draft_model_path=sys.argv[2])
    text = config.to_json_string()
else:
    config = Config.load(sys.argv[2])
    text = json.dumps({
        "path": config._name_or_path, "eos": config.eos_token_id, "pad": config.pad_token_id,
        "worker": config.fused_spec_config.worker_cls.__name__,
        "draft": config.fused_spec_config.draft_model_path,
        "draft_eos": config.fused_spec_config.draft_config.eos_token_id,
        "sharded": config.neuron_config.save_sharded_checkpoint,
        "clamp": str(config.neuron_config.quantize_clamp_bound),
        "again": config.to_json_string()})
print("\\n@@" + text.replace("\\n", " "))
"""


def vendor(*args: str) -> dict[str, Any]:
    """Run NxDI's own config classes."""
    done = subprocess.run(
        [PYTHON, "-c", VENDOR, *args],
        env={
            "PATH": os.environ["PATH"],
            "PYTHONPATH": SOURCES,
            "NEURON_PLATFORM_TARGET_OVERRIDE": "trn2",
            "NEURON_LOGICAL_NC_CONFIG": "2",
        },
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    result: dict[str, Any] = json.loads(done.stdout.rpartition("@@")[2])
    return result


@pytest.mark.neuron
@pytest.mark.skipif(not (SOURCES and PYTHON), reason="needs NxDI's sources and an interpreter")
def test_the_vendor_reads_what_is_written_from_what_it_wrote(llama: Path, tmp_path: Path) -> None:
    original = vendor("write", str(llama))
    assert original["neuron_config"]["quantize_clamp_bound"] == math.inf
    kept = without_places(original)
    assert str(llama) not in json.dumps(kept, allow_nan=False)
    same = for_model(
        kept, path=str(llama), config={}, transformers=original["transformers_version"],
        sharded=False, draft=str(llama),
    )  # fmt: skip
    assert json.loads(same) == original  # nothing lost on the way
    text = for_model(
        kept, path="/serve/b", config={"eos_token_id": [1, 9], "pad_token_id": 4},
        transformers="4.57.6", sharded=True, draft="/serve/d", draft_config={"eos_token_id": 7},
    )  # fmt: skip
    (tmp_path / "neuron_config.json").write_text(text)
    found = vendor("read", str(tmp_path))
    again = json.loads(found.pop("again"))
    assert found == {
        "path": "/serve/b",
        "eos": [1, 9],
        "pad": 4,
        "worker": LLAMA["__name__"],
        "draft": "/serve/d",
        "draft_eos": 7,
        "sharded": True,
        "clamp": "inf",
    }
    assert again == json.loads(text)
