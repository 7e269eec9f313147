"""A handed-over directory against the rules of the loaders that will meet it.

The program is a TorchScript file and the shards are safetensors, as the real ones are; the
artifact comes from the store's own API. `load` and `serve` are the loaders' rules in words of our
own (NxDI 0.9 models/application_base.py; vllm-neuron 0.2.0
worker/neuronx_distributed_model_loader.py), on the formats' real readers. The marked tests run
the plugin's own functions: NEURONCOMPILE_VLLM_NEURON_SOURCES names its checkout.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from neuroncompile.config.serving import serving_of
from neuroncompile.errors import ConfigError, CorruptArtifactError
from neuroncompile.keys import canonical, compile_spec
from neuroncompile.models.architecture import architecture_of, normalise
from neuroncompile.pipeline.exported import check_exported
from neuroncompile.pipeline.handover import check_consumer, consumer_of
from neuroncompile.store import Artifact, Layer, Store
from tests.conftest import Done, Run, write_llama

pytestmark = pytest.mark.filterwarnings("ignore:.torch.jit:DeprecationWarning")

NEURON: dict[str, Any] = {
    "tp_degree": 2,
    "batch_size": 2,
    "tkg_batch_size": 2,
    "ctx_batch_size": 1,
    "seq_len": 64,
    "max_context_length": 64,
    "torch_dtype": "float32",
    "enable_bucketing": True,
    "is_continuous_batching": True,
    "padding_side": "right",
    "on_device_sampling_config": {"dynamic": True, "deterministic": False},
    "logical_nc_config": 2,
}
CONSTRUCTED = {
    **NEURON,
    "start_rank_id": 0,
    "local_ranks_size": 2,
    "quantized": False,
    "save_sharded_checkpoint": False,
    "skip_sharding": True,
    "quantize_clamp_bound": "Infinity",
}


def load(directory: Path) -> SimpleNamespace:
    """NxDI's order of reading: config, then program, then weights."""
    import torch
    from safetensors.torch import load_file

    config = json.loads((directory / "neuron_config.json").read_text())
    program = torch.jit.load(str(directory / "model.pt"))
    neuron = config["neuron_config"]
    if neuron["save_sharded_checkpoint"]:
        first = neuron["start_rank_id"]
        weights = [
            load_file(directory / "weights" / f"tp{rank}_sharded_checkpoint.safetensors")
            for rank in range(first, first + neuron["local_ranks_size"])
        ]
    else:
        source = Path(config["_name_or_path"])
        weights = [load_file((source if source.exists() else directory) / "model.safetensors")]
    return SimpleNamespace(config=config, program=program, weights=weights)


def serve(model: str, key: str) -> tuple[Path, SimpleNamespace | None]:
    """The plugin's start: choose a directory, load, and on two exceptions compile into it."""
    named = os.environ.get("NEURON_COMPILED_ARTIFACTS")
    if named:
        path = Path(named)
    else:
        base = Path(model) if os.path.exists(model) else Path("local-models", model)
        path = base / "neuron-compiled-artifacts" / key
        path.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(path, ignore_errors=True)
    try:
        return path, load(path)
    except (FileNotFoundError, ValueError):
        return path, None


class Bench:
    """A store with one program and its shards, made from real formats."""

    def __init__(self, root: Path, run: Run) -> None:
        import torch
        from safetensors.torch import save_file

        self.root, self.run = root, run
        self.model = write_llama(root / "model")
        program = torch.jit.script(torch.nn.Linear(2, 2))
        torch.jit.save(program, str(root / "model.pt"))
        config = json.loads((self.model / "config.json").read_text())
        kept = {"_name_or_path": "left out", **config}
        del kept["_name_or_path"], kept["eos_token_id"]
        self.store = Store(root / "store")
        architecture = architecture_of(config)
        spec = compile_spec(
            backend="nxdi",
            model=normalise(config, architecture) | {"architectures": [architecture.name]},
            neuron=canonical(NEURON),
            target={"platform": "trn2", "lnc": 2},
            toolchain={
                "neuronx-distributed-inference": "0.9.17334",
                "neuronx-cc": "2.24.8799.0",
                "transformers": "4.57.6",
            },
            compiler={"args": [], "env": {}},
            optlevel=None,
        )
        constructed = {**kept, "neuron_config": CONSTRUCTED, "fused_spec_config": None}
        self.artifact: Artifact = self.store.publish(
            "compile",
            spec,
            [
                Layer(
                    "model.pt",
                    path=root / "model.pt",
                    media_type="application/vnd.neuroncompile.torchscript.v1",
                ),
                Layer(
                    "constructed.json",
                    data=json.dumps(constructed).encode(),
                    media_type="application/json",
                ),
                Layer("compile.log", data=b"log\n", media_type="text/plain"),
            ],
        )
        weights = root / "weights"
        weights.mkdir()
        for rank in range(2):
            save_file(
                {"w": torch.full((2,), float(rank))},
                weights / f"tp{rank}_sharded_checkpoint.safetensors",
            )
        self._publish_shards(spec, weights)

    def _publish_shards(self, spec: dict[str, Any], weights: Path) -> None:
        from neuroncompile.models import resolve
        from neuroncompile.pipeline.shards import shard_spec_of
        from neuroncompile.settings import load_settings
        from neuroncompile.store.oci import WEIGHT

        settings = load_settings(store=self.root / "store")
        shard = shard_spec_of(spec, resolve(str(self.model), settings), settings)
        files = sorted(weights.iterdir())
        layers = [Layer(f"weights/{f.name}", path=f, media_type=WEIGHT) for f in files]
        self.store.publish("shard", shard, layers)

    def __call__(self, *args: str) -> Done:
        return self.run(
            "--store", str(self.root / "store"), *args, XDG_CACHE_HOME=str(self.root / "cache")
        )

    def export(self, directory: Path, *more: str) -> Path:
        done = self(
            "export", self.artifact.key, str(directory), "--for=vllm:0.16",
            f"--model={self.model}", *more, "--json",
        )  # fmt: skip
        assert done.code == 0, done.out + done.err
        return directory

    def blobs(self) -> dict[str, str]:
        """Path → digest of everything under the store that holds content."""
        base = self.root / "store" / "v1"
        return {
            path.relative_to(base).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
            for part in ("blobs", "actions")
            for path in sorted((base / part).rglob("*"))
            if path.is_file()
        }


@pytest.fixture
def bench(tmp_path: Path, run: Run) -> Bench:
    return Bench(tmp_path / "bench", run)


# --- the table of states and exceptions


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:40])


SHARD = "weights/tp1_sharded_checkpoint.safetensors"
STATES: list[tuple[str, Callable[[Path], Any], bool]] = [
    ("neuron_config.json", Path.unlink, True),
    (SHARD, Path.unlink, True),
    ("model.pt", Path.unlink, True),
    ("neuron_config.json", cut, True),
    ("model.pt", cut, False),
    (SHARD, cut, False),
]


@pytest.mark.parametrize(("name", "change", "silent"), STATES)
def test_states_that_the_loader_meets(
    bench: Bench,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    change: Callable[[Path], Any],
    silent: bool,
) -> None:
    """A whole export loads; each damage is what the loader says it is, and `env` finds it first."""
    served = bench.export(tmp_path / "served", "--shards", "--copy")
    monkeypatch.setenv("NEURON_COMPILED_ARTIFACTS", str(served))
    path, found = serve("unused", "0" * 32)
    assert path == served
    assert found is not None
    assert [float(part["w"][0]) for part in found.weights] == [0.0, 1.0]
    check_exported(served, bench.artifact, bench.store)
    change(served / name)
    if silent:
        assert serve("unused", "0" * 32)[1] is None  # it would compile into the directory
    else:
        with pytest.raises(Exception) as caught:  # noqa: PT011 - safetensors' own base class
            serve("unused", "0" * 32)
        assert not isinstance(caught.value, (FileNotFoundError, ValueError))
    with pytest.raises(CorruptArtifactError) as named:
        check_exported(served, bench.artifact, bench.store)
    assert named.value.details["file"] == name
    done = bench("env", bench.artifact.key, "--for=vllm:0.16", f"--dir={served}", "--json")
    assert done.code == 7
    assert name in done.document["error"]["message"]
    assert "NEURON_COMPILED_ARTIFACTS" not in done.out


def test_moved_export_needs_nothing_of_where_it_was(bench: Bench, tmp_path: Path) -> None:
    served = bench.export(tmp_path / "served", "--shards")
    os.rename(served, tmp_path / "moved")
    shutil.rmtree(bench.root / "store")
    shutil.rmtree(bench.model)
    assert len(load(tmp_path / "moved").weights) == 2


def test_without_shards_the_named_checkpoint_is_loaded(bench: Bench, tmp_path: Path) -> None:
    served = bench.export(tmp_path / "served")
    assert "lm_head.weight" in load(served).weights[0]
    bench.model.rename(tmp_path / "away")
    with pytest.raises(FileNotFoundError):
        load(served)


# --- what the plugin deletes


@pytest.mark.parametrize("linked", ["nothing", "leaf", "parent", "model"])
@pytest.mark.parametrize("to", ["export", "view"])
def test_nothing_of_ours_goes_where_the_plugin_deletes(
    bench: Bench,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    linked: str,
    to: str,
) -> None:
    """Even where somebody links what is ours into the plugin's own cache, the store stays."""
    monkeypatch.delenv("NEURON_COMPILED_ARTIFACTS", raising=False)
    served = bench.export(tmp_path / "served", "--shards")
    ours = served if to == "export" else bench.store.view(bench.artifact)
    model, key = tmp_path / "checkpoint", "abc"
    if linked == "model":
        model.symlink_to(ours)
    else:
        model.mkdir()
        if linked == "parent":
            (model / "neuron-compiled-artifacts").symlink_to(ours.parent)
            key = ours.name
        elif linked == "leaf":
            (model / "neuron-compiled-artifacts").mkdir()
            (model / "neuron-compiled-artifacts" / key).symlink_to(ours)
    before = bench.blobs()
    serve(str(model), key)
    assert bench.blobs() == before
    assert bench("store", "verify").code == 0


# --- `env` and what it is shown


def test_env_knows_whose_export_it_is(bench: Bench, tmp_path: Path) -> None:
    served = bench.export(tmp_path / "served", "--copy")
    sidecar = served / "neuroncompile.json"
    sidecar.write_text(json.dumps({**json.loads(sidecar.read_text()), "key": "f" * 64}))
    with pytest.raises(ConfigError) as caught:
        check_exported(served, bench.artifact, bench.store)
    assert caught.value.field == "--dir"
    sidecar.unlink()
    with pytest.raises(CorruptArtifactError):
        check_exported(served, bench.artifact, bench.store)


@pytest.mark.parametrize("field", ["seq_len", "tp_degree", "padding_side"])
def test_edited_config_is_named_by_its_field(bench: Bench, tmp_path: Path, field: str) -> None:
    """The plugin would take it, since it compares nothing."""
    served = bench.export(tmp_path / "served", "--copy")
    path = served / "neuron_config.json"
    config = json.loads(path.read_text())
    config["neuron_config"][field] = "another"
    path.write_text(json.dumps(config))
    with pytest.raises(CorruptArtifactError) as caught:
        check_exported(served, bench.artifact, bench.store)
    assert field in str(caught.value)


def test_sidecar_says_what_the_directory_is(bench: Bench, tmp_path: Path) -> None:
    sidecar = json.loads((bench.export(tmp_path / "served") / "neuroncompile.json").read_text())
    assert sidecar["key"] == bench.artifact.key
    assert sidecar["spec"]["target"] == {"platform": "trn2", "lnc": 2}
    assert sidecar["spec"]["toolchain"]["neuronx-cc"] == "2.24.8799.0"


def test_place_on_another_host_is_not_checked_and_said(bench: Bench) -> None:
    done = bench("env", bench.artifact.key, "--for=vllm:0.16", "--dir=/srv/elsewhere", "--json")
    assert done.code == 0
    assert any("not on this host" in text for text in done.document["warnings"])
    environment = done.document["result"]["environment"]
    assert environment["NEURON_COMPILED_ARTIFACTS"] == "/srv/elsewhere"
    assert environment["NEURON_RT_VISIBLE_CORES"] == "0-1"


def test_program_of_another_sdk_than_the_plugins_is_said(bench: Bench) -> None:
    done = bench("env", bench.artifact.key, "--for=vllm:0.11", "--dir=/srv/x", "--json")
    assert done.code == 0
    assert any("SDK 2.26" in text for text in done.document["warnings"])


def test_config_that_its_own_reader_fails_on_is_said() -> None:
    """NxDI 0.9's from_json_string asserts on what its to_json_string writes of kv_quant_config."""
    spec: dict[str, Any] = {"neuron": {"kv_quant_config": {"k": "direct_cast"}}}
    assert "kv_quant_config" in str(check_consumer(consumer_of("nxdi"), spec))
    assert check_consumer(consumer_of("nxdi"), {"neuron": {}}) is None


# --- the plugin's own functions

PLUGIN = os.environ.get("NEURONCOMPILE_VLLM_NEURON_SOURCES", "")

STUBS = """
import importlib, json, re, sys, types
from pathlib import Path

class Anything(types.ModuleType):
    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (), {})

for name in ("vllm", "vllm.config", "vllm.model_executor", "vllm.model_executor.layers",
             "vllm.model_executor.layers.logits_processor", "vllm.v1", "vllm.v1.outputs",
             "vllm.v1.sample", "neuronx_distributed_inference",
             "neuronx_distributed_inference.models",
             "neuronx_distributed_inference.models.config",
             "neuronx_distributed_inference.modules",
             "neuronx_distributed_inference.modules.lora_serving",
             "neuronx_distributed_inference.utils", "neuronx_distributed_inference.utils.constants",
             "neuronx_distributed_inference.utils.hf_adapter", "transformers", "vllm_neuron",
             "vllm_neuron.worker"):
    sys.modules[name] = Anything(name)
sys.modules["regex"] = re
sys.modules["vllm.model_executor.layers.logits_processor"].LogitsProcessor = object
sys.modules["neuronx_distributed_inference.models.config"].OnDeviceSamplingConfig = dict
root = Path(sys.argv[1]) / "vllm_neuron"
sys.modules["vllm_neuron"].__path__ = [str(root)]
sys.modules["vllm_neuron.worker"].__path__ = [str(root / "worker")]
loader = importlib.import_module("vllm_neuron.worker.neuronx_distributed_model_loader")

options = dict(word.lstrip("-").partition("=")[::2] for word in json.loads(sys.argv[2]))
Space = types.SimpleNamespace
length = int(options["max-model-len"])
caching = "enable-prefix-caching" in options
model = Space(dtype=options["dtype"])
# platform.py: one more block for vLLM's null block; without prefix caching a block is a sequence
cache = Space(num_gpu_blocks_override=int(options["num-gpu-blocks-override"]) + 1,
              block_size=int(options["block-size"]) if caching else length,
              enable_prefix_caching=caching)
parallel = Space(tensor_parallel_size=int(options["tensor-parallel-size"]))
scheduler = Space(max_num_seqs=int(options["max-num-seqs"]), max_model_len=length,
                  chunked_prefill_enabled=False)
speculation = json.loads(options["speculative-config"]) if "speculative-config" in options else None
override = json.loads(options.get("additional-config", "{}")).get("override_neuron_config")
config = loader._get_default_neuron_config(model, cache, parallel, scheduler, None,
                                           Space(**speculation) if speculation else None)
config = loader._get_neuron_config_after_override(config, override)
if config.get("is_block_kv_layout"):
    config = loader._handle_pa_num_blocks(cache, config, override)
config = loader._validate_neuron_config(cache, scheduler, config)
print(json.dumps(config))
"""

CASES: list[dict[str, Any]] = [
    {},
    {"batch_size": 1, "tkg_batch_size": 1, "is_continuous_batching": False},
    {"torch_dtype": "bfloat16", "tp_degree": 32, "seq_len": 4096, "max_context_length": 1024},
    {"enable_bucketing": False},
    {"context_encoding_buckets": [32, 64], "token_generation_buckets": [64]},
    {"on_device_sampling_config": None},
    {"on_device_sampling_config": {"dynamic": True, "deterministic": True, "global_topk": 64}},
    {
        "quantized": True,
        "quantization_dtype": "f8e4m3",
        "quantization_type": "per_channel_symmetric",
    },
    {"sequence_parallel_enabled": True, "fused_qkv": True, "kv_cache_quant": True},
    {"enable_fused_speculation": True, "speculation_length": 5},
    {
        "enable_fused_speculation": True,
        "speculation_length": 5,
        "enable_eagle_speculation": True,
    },
    {
        "is_block_kv_layout": True,
        "is_prefix_caching": True,
        "pa_block_size": 32,
        "pa_num_blocks": 5,
    },
]


@pytest.mark.neuron
@pytest.mark.skipif(not PLUGIN, reason="NEURONCOMPILE_VLLM_NEURON_SOURCES names no checkout")
@pytest.mark.parametrize("more", CASES, ids=lambda more: " ".join(more) or "plain")
def test_the_plugin_derives_the_program_from_the_options(more: dict[str, Any]) -> None:
    neuron = {**NEURON, **more}
    options = serving_of(neuron, draft="/models/draft").options
    done = subprocess.run(
        [sys.executable, "-c", STUBS, PLUGIN, json.dumps(options)],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    derived = json.loads(done.stdout.splitlines()[-1])
    for name, value in neuron.items():
        if name in ("logical_nc_config", "tkg_batch_size"):
            continue  # a variable; and NxDI's own default, the batch size
        assert derived.get(name) == value, name
