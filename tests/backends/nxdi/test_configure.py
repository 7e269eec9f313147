"""Our way to a constructed config against direct construction, on NxD Inference's own classes.

Ours: recipe → plan → keywords → the worker's `configure`. Direct: the vendor's classes on the
original config.json with what the user asked for. Graphs, buckets and compiler flags must be equal,
and so must every attribute but those that we say and NxDI leaves to be derived.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from neuroncompile.backends.nxdi.compile import model_config
from neuroncompile.backends.nxdi.process import Limits, OrderFailed, Worker
from neuroncompile.pipeline.plan import Plan, make_plan
from neuroncompile.pipeline.program import order_of
from neuroncompile.pipeline.request import BuildRequest
from neuroncompile.settings import load_settings
from tests.backends.nxdi import vendor
from tests.backends.nxdi.tiny import CONFIGS, MODELS, QWEN2_VL

pytestmark = [pytest.mark.neuron, vendor.needed]

DERIVED = {
    "context_encoding_buckets",
    "token_generation_buckets",
    "buckets",
    "overrides_torch_dtype",
}
"""What our keywords say outright; the graphs below show that both come to the same buckets."""

PLACES = {"_name_or_path", "transformers_version", "eos_token_id", "bos_token_id", "pad_token_id"}
"""Of the host, or left out of every key."""


def planned(model: dict[str, Any], neuron: dict[str, Any], place: Path, **more: Any) -> Plan:
    """The plan of a checkpoint with this config.json; its weights are never read."""
    place.mkdir(parents=True, exist_ok=True)
    (place / "config.json").write_text(json.dumps(model))
    header = b'{"x":{"dtype":"BF16","shape":[1],"data_offsets":[0,2]}}'
    (place / "model.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + b"\0\0")
    request = BuildRequest(
        model=str(place),
        target="trn2",
        sets=tuple(f"{name}={json.dumps(value)}" for name, value in neuron.items()),
        allow_head_padding=True,
        toolchain="sdk-2.29",
        unlocked=True,
        **more,
    )
    return make_plan(request, load_settings(offline=True))


@pytest.fixture(scope="module")
def worker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Worker]:
    place = tmp_path_factory.mktemp("worker")
    process = Worker(
        str(vendor.PYTHON),
        environment=vendor.environment(place / "site"),
        directory=place,
        log=place / "log",
        limits=Limits(seconds=300),
    )
    yield process
    process.close()


def configured(worker: Worker, plan: Plan, place: Path) -> dict[str, Any]:
    """What the worker constructs for a plan."""
    order = order_of(plan, str(vendor.PYTHON))
    place.mkdir(parents=True, exist_ok=True)
    (place / "config.json").write_text(json.dumps(model_config(order.model, order.spec)))
    draft = None
    if order.draft is not None:
        (place / "draft").mkdir(exist_ok=True)
        text = json.dumps(model_config(order.draft["model"], order.spec))
        (place / "draft" / "config.json").write_text(text)
        draft = {"model": str(place / "draft"), "neuron": order.draft["neuron"]}
    result, _ = worker.order(
        {
            "op": "configure",
            "class": order.reference,
            "model": str(place),
            "neuron": dict(order.neuron),
            "draft": draft,
            "optlevel": order.spec["optlevel"],
        }
    )
    graphs = [
        [g["submodel"], g["batch"], g["bucket"], " ".join(g["flags"].split())]
        for g in result["graphs"]
    ]
    return {"config": json.loads(result["config"]), "graphs": graphs}


@pytest.fixture(scope="module")
def directly(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """Family and config → what the vendor's classes come to by themselves; one process for all."""
    place = tmp_path_factory.mktemp("direct")
    cases, names = [], []
    from neuroncompile.models.families import ARCHITECTURES

    for family, model in MODELS.items():
        directory = place / family
        directory.mkdir()
        (directory / "config.json").write_text(json.dumps(model))
        for name, neuron in CONFIGS.items():
            asked = {"logical_nc_config": 2, "enable_bucketing": True, **neuron}
            reference = ARCHITECTURES[model["architectures"][0]].nxdi
            cases.append({"class": reference, "model": str(directory), "neuron": asked})
            names.append(f"{family} {name}")
    return dict(zip(names, constructed(cases, place), strict=True))


def constructed(cases: list[dict[str, Any]], place: Path) -> list[dict[str, Any]]:
    """What the vendor's interpreter makes of each case by itself."""
    script = Path(__file__).with_name("direct.py")
    done = subprocess.run(
        [str(vendor.PYTHON), "-s", str(script)],
        input=json.dumps(cases),
        capture_output=True,
        text=True,
        env=vendor.environment(place / "site"),
        cwd=place,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    results: list[dict[str, Any]] = json.loads(done.stdout.splitlines()[-1])
    return results


def stripped(value: Any) -> Any:
    """A config without what is derived outright, names a place, or no key has."""
    if isinstance(value, dict):
        return {
            name: stripped(item)
            for name, item in value.items()
            if name not in DERIVED and name not in PLACES
        }
    return [stripped(item) for item in value] if isinstance(value, list) else value


@pytest.mark.parametrize("name", CONFIGS)
@pytest.mark.parametrize("family", MODELS)
def test_same_as_direct_construction(
    family: str,
    name: str,
    worker: Worker,
    directly: dict[str, dict[str, Any]],
    tmp_path: Path,
) -> None:
    wanted = directly[f"{family} {name}"]
    plan = planned(MODELS[family], CONFIGS[name], tmp_path)
    if "error" in wanted:
        with pytest.raises(OrderFailed):
            configured(worker, plan, tmp_path / "model")
        pytest.skip(f"NxDI itself refuses it: {wanted['error'][:200]}")
    ours = configured(worker, plan, tmp_path / "model")
    assert sorted(ours["graphs"], key=str) == sorted(wanted["graphs"], key=str)
    assert stripped(ours["config"]) == stripped(wanted["config"])


@pytest.mark.parametrize("family", ["llama", "qwen3", "mixtral"])
def test_both_spellings_of_a_config(family: str, worker: Worker, tmp_path: Path) -> None:
    """transformers 5's `rope_parameters` and `dtype`, which the vendor's transformers ignores."""
    old = {**MODELS[family], "rope_theta": 54321.0}
    new = {k: v for k, v in old.items() if k not in ("rope_theta", "torch_dtype")}
    new |= {
        "rope_parameters": {"rope_theta": 54321.0, "rope_type": "default"},
        "dtype": old["torch_dtype"],
    }
    plans = [planned(m, CONFIGS["plain"], tmp_path / n) for n, m in (("a", old), ("b", new))]
    assert plans[0].key == plans[1].key
    first, second = (
        configured(worker, plan, tmp_path / "model" / str(n)) for n, plan in enumerate(plans)
    )
    assert first["config"]["rope_theta"] == 54321.0
    assert stripped(first) == stripped(second)


def test_image_to_text_has_two_configs(worker: Worker, tmp_path: Path) -> None:
    from neuroncompile.models.families import ARCHITECTURES

    vision = {"batch_size": 1, "seq_len": 256, "buckets": [1], "fused_qkv": True}
    vision |= {"torch_dtype": "bfloat16", "logical_nc_config": 2}
    (tmp_path / "direct").mkdir()
    (tmp_path / "direct" / "config.json").write_text(json.dumps(QWEN2_VL))
    case = {
        "class": ARCHITECTURES["Qwen2VLForConditionalGeneration"].nxdi,
        "model": str(tmp_path / "direct"),
        "neuron": {
            **CONFIGS["plain"],
            "enable_bucketing": True,
            "logical_nc_config": 2,
            "vision_neuron_config": dict(vision),
        },
    }
    (wanted,) = constructed([case], tmp_path)
    neuron = {**CONFIGS["plain"], "vision_neuron_config": vision}
    ours = configured(worker, planned(QWEN2_VL, neuron, tmp_path / "a"), tmp_path / "b")
    assert ours["graphs"] == wanted["graphs"]
    assert {row[0] for row in ours["graphs"]} >= {"vision_encoder_model"}
    assert stripped(ours["config"]) == stripped(wanted["config"])
