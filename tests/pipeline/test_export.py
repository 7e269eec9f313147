"""Directories and options for NxD Inference and vLLM, against the rules of their loaders.

`loaded` and `plugins_config` are those rules, as vllm-neuron 0.2.0 and NxDI 0.9 have them (worker/
neuronx_distributed_model_loader.py, application_base.py), in words of our own.
"""

from __future__ import annotations

import json
import math
import os
import re
import shlex
import shutil
import stat
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

from neuroncompile.config.serving import serving_of
from neuroncompile.errors import ConfigError
from tests.conftest import ROOT, Done, Run, write_llama
from tests.standins.toolchain import StandIn

SIZES = ("--seq-len=64", "--context-encoding-buckets=32,64", "--token-generation-buckets=64")


def loaded(directory: Path) -> dict[str, Any]:
    """What NxDI's loader takes from a compiled directory: its config, and where weights are."""
    config: dict[str, Any] = json.loads((directory / "neuron_config.json").read_text())
    model = directory / "model.pt"
    if not model.is_file():
        raise ValueError(f"The provided filename {model} does not exist")
    with zipfile.ZipFile(model) as archive:
        if archive.testzip():
            raise RuntimeError("PytorchStreamReader failed")
    neuron = config["neuron_config"]
    ranks = range(neuron["start_rank_id"], neuron["start_rank_id"] + neuron["local_ranks_size"])
    if neuron["save_sharded_checkpoint"]:
        files = [directory / f"weights/tp{r}_sharded_checkpoint.safetensors" for r in ranks]
        for file in files:
            file.stat()
        return {"config": config, "weights": [file.read_bytes() for file in files]}
    source = Path(config["_name_or_path"])
    if not source.exists():
        source = directory
    if neuron["quantized"]:
        source = Path(neuron["quantized_checkpoints_path"])
    return {"config": config, "weights": [(source / "model.safetensors").read_bytes()]}


def compiled_path(model: str, environment: dict[str, str], key: str) -> Path:
    """Where the plugin looks; what it deletes on the way is deleted."""
    if environment.get("NEURON_COMPILED_ARTIFACTS"):
        return Path(environment["NEURON_COMPILED_ARTIFACTS"])
    base = Path(model) if os.path.exists(model) else Path("local-models") / model
    path = base / "neuron-compiled-artifacts" / key
    path.mkdir(parents=True, exist_ok=True)
    shutil.rmtree(path, ignore_errors=True)
    return path


def plugins_config(options: list[str]) -> dict[str, Any]:
    """The neuron config that the plugin derives from its command line."""
    table = dict(word.lstrip("-").partition("=")[::2] for word in options)
    batch, length = int(table["max-num-seqs"]), int(table["max-model-len"])
    caching = "enable-prefix-caching" in table
    block = int(table["block-size"]) if caching else length
    override = int(table["num-gpu-blocks-override"]) + 1
    config: dict[str, Any] = {
        "tp_degree": int(table["tensor-parallel-size"]),
        "ctx_batch_size": 1,
        "batch_size": batch,
        "max_context_length": length,
        "seq_len": length,
        "enable_bucketing": True,
        "is_continuous_batching": batch > 1,
        "quantized": False,
        "torch_dtype": table["dtype"],
        "padding_side": "right",
        "on_device_sampling_config": {"dynamic": True, "deterministic": False},
        "pa_num_blocks": override,
        "pa_block_size": block,
        "is_block_kv_layout": caching,
        "is_prefix_caching": caching,
    }
    if "speculative-config" in table:
        speculation = json.loads(table["speculative-config"])
        config["enable_fused_speculation"] = True
        config["speculation_length"] = speculation["num_speculative_tokens"]
        if speculation.get("method") == "eagle":
            config["enable_eagle_speculation"] = True
    more = json.loads(table.get("additional-config", "{}"))
    config.update(more.get("override_neuron_config", {}))
    if config["is_block_kv_layout"]:
        assert override - 1 >= math.ceil(length / block) * batch
    return config


@pytest.fixture(scope="module")
def toolchain(tmp_path_factory: pytest.TempPathFactory) -> StandIn:
    return StandIn(tmp_path_factory.mktemp("sdk") / "venv")


class Bench:
    """The command line on the module's store; `place` is for what a test writes."""

    def __init__(self, run: Run, model: Path, toolchain: StandIn, kept: Path, place: Path) -> None:
        self.run, self.model, self.toolchain = run, model, toolchain
        self.kept, self.place = kept, place

    def __call__(self, *args: str) -> Done:
        return self.run(
            "--store", str(self.kept / "store"), *args, XDG_CACHE_HOME=str(self.kept / "cache")
        )

    def build(self, *more: str, model: Path | None = None) -> str:
        done = self(
            "build", str(model or self.model), "--target=trn2",
            f"--toolchain={self.toolchain.file}", *SIZES, *more, "--json",
        )  # fmt: skip
        assert done.code == 0, done.err
        key: str = done.document["result"]["key"]
        return key

    def export(self, key: str, name: str, *more: str, model: Path | None = None) -> Path:
        directory = self.place / name
        args = (*more,) if "--for" in " ".join(more) else ("--for=nxdi", *more)
        done = self(
            "export", key[:12], str(directory), f"--model={model or self.model}", *args, "--json"
        )
        assert done.code == 0, done.err
        return directory


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("kept")


@pytest.fixture
def bench(run: Run, llama: Path, toolchain: StandIn, kept: Path, tmp_path: Path) -> Bench:
    return Bench(run, llama, toolchain, kept, tmp_path)


def test_fine_tune_is_served_with_its_own_weights_and_ids(bench: Bench, tmp_path: Path) -> None:
    """A is built, B hits, and A's checkpoint is still where it was."""
    other = write_llama(tmp_path / "other", seed=7, eos_token_id=[1, 9])
    key = bench.build()
    assert bench.build(model=other) == key
    for name, model, eos in (("a", bench.model, 1), ("b", other, [1, 9])):
        directory = bench.export(key, name, model=model)
        found = loaded(directory)
        assert found["config"]["_name_or_path"] == str(model)
        assert found["config"]["eos_token_id"] == eos
        assert found["weights"] == [(model / "model.safetensors").read_bytes()]
        assert found["config"]["transformers_version"] == "4.57.6"
        assert (directory / "tokenizer.json").is_file()
        sidecar = json.loads((directory / "neuroncompile.json").read_text())
        assert sidecar["key"] == key


def test_shipped_shards_need_no_checkpoint(bench: Bench, tmp_path: Path) -> None:
    model = tmp_path / "model's own place"
    shutil.copytree(bench.model, model)
    key = bench.build("--shard", "--tensor-parallel-size=2", model=model)
    directory = bench.export(key, "served", "--shards", model=model)
    shutil.rmtree(model)
    moved = tmp_path / "elsewhere"
    os.rename(directory, moved)  # relocatable
    found = loaded(moved)
    assert found["config"]["neuron_config"]["save_sharded_checkpoint"] is True
    assert len(found["weights"]) == 2


def test_readmes_example(bench: Bench, tmp_path: Path) -> None:
    """README's commands for vLLM, run by a shell."""
    [block] = [
        text
        for text in re.findall(r"```sh\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
        if "neuroncompile export" in text
    ]
    key = bench.build("--shard", "--tensor-parallel-size=2")
    script = block.replace("KEY", key[:12]).replace("org/my-fine-tune", str(bench.model))
    tool = tmp_path / "neuroncompile"
    tool.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m neuroncompile "$@"\n')
    tool.chmod(0o755)
    done = subprocess.run(
        ["bash", "-ec", script + 'echo "$NEURON_COMPILED_ARTIFACTS $NEURON_RT_VISIBLE_CORES"'],
        cwd=tmp_path,
        env={
            **os.environ,
            "PATH": f"{tmp_path}:{os.environ['PATH']}",
            "PYTHONPATH": str(ROOT),
            "NEURONCOMPILE_STORE": str(bench.kept / "store"),
            "XDG_CACHE_HOME": str(bench.kept / "cache"),
        },
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == f"{tmp_path / 'served'} 0-1"
    assert len(loaded(tmp_path / "served")["weights"]) == 2


def test_shards_that_were_not_cut_are_asked_for(bench: Bench) -> None:
    key = bench.build()
    done = bench(
        "export", key, str(bench.place / "x"), "--for=nxdi", f"--model={bench.model}", "--shards",
        "--json",
    )  # fmt: skip
    assert done.code == 5
    assert "--shard" in done.document["error"]["hint"]
    assert not (bench.place / "x").exists()


def test_read_only_and_apart_from_the_store(bench: Bench) -> None:
    key = bench.build()
    directory = bench.export(key, "served")
    blobs = {p.stat().st_ino for p in (bench.kept / "store").rglob("*") if p.is_file()}
    for path in [directory, *directory.rglob("*")]:
        assert not path.is_symlink()
        assert not stat.S_IMODE(path.stat().st_mode) & 0o222
        assert path.stat().st_ino not in blobs
    writable = bench.export(key, "writable", "--copy")
    assert all(p.stat().st_mode & 0o200 for p in writable.rglob("*"))


def test_not_over_what_is_there(bench: Bench) -> None:
    key = bench.build()
    directory = bench.place / "mine"
    directory.mkdir()
    (directory / "precious").write_text("yes")
    done = bench("export", key, str(directory), "--for=nxdi", f"--model={bench.model}")
    assert done.code == 2
    assert [p.name for p in directory.iterdir()] == ["precious"]
    (directory / "precious").unlink()
    assert bench.export(key, "mine") == directory
    assert not list(bench.place.glob(".mine*"))


@pytest.mark.parametrize("linked", [False, True])
def test_never_into_the_store(bench: Bench, tmp_path: Path, linked: bool) -> None:
    """A loader deletes in there what is not its own."""
    key = bench.build()
    place = bench.kept / "store" / "v1"
    if linked:
        (tmp_path / "link").symlink_to(place)
        place = tmp_path / "link"
    done = bench(
        "export", key, str(place / "served"), "--for=nxdi", f"--model={bench.model}", "--json"
    )
    assert done.code == 2
    assert "lies in the store" in done.document["error"]["message"]
    assert not (place / "served").exists()


def test_serves_as_vllms_model_too(bench: Bench) -> None:
    """config.json is there, spelt as transformers 4 reads it."""
    directory = bench.export(bench.build(), "served")
    config = json.loads((directory / "config.json").read_text())
    original = json.loads((bench.model / "config.json").read_text())
    assert config["hidden_size"] == original["hidden_size"]
    assert config["eos_token_id"] == original["eos_token_id"]
    assert config["torch_dtype"] == "float32"
    assert not {"dtype", "rope_parameters"} & set(config)


def test_damaged_program_is_not_exported(bench: Bench, tmp_path: Path) -> None:
    bench.kept = tmp_path / "damaged"
    key = bench.build()
    (blob,) = (bench.kept / "store" / "v1" / "views").glob("*/model.pt")
    blob.chmod(0o644)
    data = bytearray(blob.read_bytes())
    data[len(data) // 2] ^= 1
    blob.write_bytes(data)
    done = bench(
        "export", key, str(bench.place / "x"), "--for=nxdi", f"--model={bench.model}", "--json"
    )
    assert done.code == 7
    assert not (bench.place / "x").exists()


def test_another_architecture_is_refused_by_its_field(bench: Bench, tmp_path: Path) -> None:
    other = write_llama(tmp_path / "wider", intermediate_size=128)
    key = bench.build()
    done = bench("export", key, str(tmp_path / "x"), "--for=nxdi", f"--model={other}", "--json")
    assert done.code == 5
    error = done.document["error"]
    assert error["details"]["field"] == "model.intermediate_size"


def test_path_on_the_serving_host(bench: Bench) -> None:
    key = bench.build()
    directory = bench.export(key, "served", "--model-path=/models/tiny")
    config = json.loads((directory / "neuron_config.json").read_text())
    assert config["_name_or_path"] == "/models/tiny"


def test_cpu_programs_are_not_for_them(run: Run, built_key: str, store_root: Path) -> None:
    done = run(
        "--store", str(store_root), "export", built_key, "/tmp/never", "--for=nxdi",
        "--model=x", "--json",
    )  # fmt: skip
    assert done.code == 5
    assert "cpu" in done.document["error"]["message"]


# --- vLLM


@pytest.mark.parametrize("linked", ["nothing", "leaf", "parent"])
def test_plugins_own_directory_never_reaches_the_store(
    bench: Bench, tmp_path: Path, linked: str
) -> None:
    """Its default branch deletes first; what is ours survives, even behind links."""
    key = bench.build()
    served = bench.export(key, "served")
    model = tmp_path / "model"
    model.mkdir()
    if linked == "parent":
        (model / "neuron-compiled-artifacts").symlink_to(served)
    elif linked == "leaf":
        (model / "neuron-compiled-artifacts").mkdir()
        (model / "neuron-compiled-artifacts" / "abc").symlink_to(served)
    before = sorted(p.name for p in served.iterdir())
    compiled_path(str(model), {}, "abc")
    assert sorted(p.name for p in served.iterdir()) == before
    assert bench("store", "verify").code == 0


def test_environment_leads_the_plugin_to_the_export(bench: Bench) -> None:
    key = bench.build("--vllm", "--max-num-seqs=4", "--max-model-len=64")
    served = bench.export(key, "served", "--for=vllm:0.11")
    done = bench("env", key, "--for=vllm:0.11", f"--dir={served}", "--json")
    assert done.code == 0, done.err
    result = done.document["result"]
    path = compiled_path("unused", result["environment"], "abc")
    assert path == served
    neuron = loaded(path)["config"]["neuron_config"]
    derived = plugins_config(result["options"])
    for name in ("tp_degree", "batch_size", "seq_len", "max_context_length", "torch_dtype"):
        assert derived[name] == neuron[name], name
    shell = bench("env", key, "--for=vllm:0.11", f"--dir={served}").out.splitlines()
    assert f"export NEURON_COMPILED_ARTIFACTS={served}" in shell
    assert "export NEURON_LOGICAL_NC_CONFIG=2" in shell
    docker = bench("env", key, "--for=vllm:0.11", f"--dir={served}", "--format=docker").out
    assert dict(line.split("=", 1) for line in docker.splitlines()) == result["environment"]


FUSED = (
    "--set=enable_fused_speculation=true",
    "--set=speculation_length=3",
    "--set=on_device_sampling_config.top_k=1",
    "--draft-model=self",
)


def test_draft_is_handed_over_with_the_program(bench: Bench) -> None:
    """Its path is one of vLLM's options, taken from the export where it is not said."""
    key = bench.build(*FUSED)
    alone = bench("env", key, "--for=vllm:0.16", "--json")
    assert alone.code == 2
    assert "--draft-model" in alone.document["error"]["hint"]
    without = bench(
        "export", key, str(bench.place / "x"), "--for=nxdi", f"--model={bench.model}", "--json"
    )
    assert without.code == 2
    served = bench.export(key, "served", "--for=vllm:0.16", "--draft-model=self")
    config = loaded(served)["config"]["fused_spec_config"]
    assert config["draft_model_path"] == str(bench.model)
    for path, more in ((str(bench.model), ()), ("/models/d", ("--draft-model=/models/d",))):
        done = bench("env", key, "--for=vllm:0.16", f"--dir={served}", *more, "--json")
        assert done.code == 0, done.err
        table = dict(
            word.lstrip("-").partition("=")[::2] for word in done.document["result"]["options"]
        )
        speculation = json.loads(table["speculative-config"])
        assert speculation == {"model": path, "num_speculative_tokens": 3}


@pytest.mark.parametrize("version", ["0.21", "0.24.0", "1.0"])
def test_newer_plugins_get_no_variable_that_they_do_not_read(bench: Bench, version: str) -> None:
    key = bench.build()
    done = bench("env", key, f"--for=vllm:{version}", "--json")
    assert done.code == 5
    assert "NEURON_COMPILED_ARTIFACTS is not read" in done.document["error"]["message"]
    assert "NEURON_COMPILED_ARTIFACTS=" not in done.out
    refused = bench("export", key, str(bench.place / "x"), f"--for=vllm:{version}", "--model=x")
    assert refused.code == 5


@pytest.mark.parametrize("text", ["vllm", "vllm:", "vllm:new", "tgi:1.0", "nxdi:1"])
def test_nobody_by_that_name(bench: Bench, text: str) -> None:
    done = bench("env", "0" * 12, f"--for={text}")
    assert done.code == 2


BASE: dict[str, Any] = {
    "tp_degree": 8,
    "batch_size": 4,
    "tkg_batch_size": 4,
    "ctx_batch_size": 1,
    "seq_len": 2048,
    "max_context_length": 2048,
    "torch_dtype": "bfloat16",
    "enable_bucketing": True,
    "is_continuous_batching": True,
    "padding_side": "right",
    "on_device_sampling_config": {"dynamic": True, "deterministic": False},
    "logical_nc_config": 2,
}


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"batch_size": 1, "tkg_batch_size": 1, "is_continuous_batching": False},
        {"torch_dtype": "float16", "tp_degree": 1},
        {"max_context_length": 1024},
        {"enable_bucketing": False},
        {"context_encoding_buckets": [128, 2048], "token_generation_buckets": [2048]},
        {"sequence_parallel_enabled": True, "fused_qkv": True},
        {"on_device_sampling_config": None},
        {"on_device_sampling_config": {"dynamic": True, "deterministic": True, "global_topk": 64}},
        {"quantized": True, "quantization_dtype": "int8"},
        {"kv_cache_quant": True},
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
            "pa_num_blocks": 300,
        },
    ],
    ids=lambda more: " ".join(more) or "plain",
)
def test_options_lead_back_to_the_program(more: dict[str, Any]) -> None:
    neuron = {**BASE, **more}
    derived = plugins_config(list(serving_of(neuron).options))
    for name, value in neuron.items():
        if name in ("logical_nc_config", "tkg_batch_size"):
            continue  # a variable; and NxDI's own default, the batch size
        found = derived.get(name, False if value is False else None)
        if isinstance(value, dict):
            assert {**(found or {}), **value} == found, name
        else:
            assert found == value, name
    words = shlex.split(" ".join(map(shlex.quote, serving_of(neuron).options)))
    assert tuple(words) == serving_of(neuron).options


@pytest.mark.parametrize(
    ("more", "second", "first"),
    [
        ({}, 4, 5),
        (
            {
                "is_block_kv_layout": True,
                "is_prefix_caching": True,
                "pa_block_size": 32,
                "pa_num_blocks": 300,
            },
            299,
            300,
        ),
    ],
    ids=["contiguous", "paged"],
)
def test_blocks_as_each_plugin_counts_them(more: dict[str, Any], second: int, first: int) -> None:
    """0.2 adds one for vLLM's null block, and 0.1 does not: both end at the same number."""
    neuron = {**BASE, **more}
    assert f"--num-gpu-blocks-override={second}" in serving_of(neuron).options
    assert f"--num-gpu-blocks-override={first}" in serving_of(neuron, first=True).options


def test_family_with_images_is_overridden_in_its_two_parts() -> None:
    """The plugin asserts that an override has no other key for such a family."""
    vision = {"batch_size": 1, "tp_degree": 8}
    neuron = {
        **BASE,
        "fused_qkv": True,
        "text_neuron_config": {"enable_bucketing": False},
        "vision_neuron_config": vision,
    }
    assert serving_of(neuron).overrides == {
        "text_neuron_config": {"enable_bucketing": False, "fused_qkv": True},
        "vision_neuron_config": vision,
    }
    plain = {**BASE, "vision_neuron_config": vision}
    assert set(serving_of(plain).overrides) == {"text_neuron_config", "vision_neuron_config"}


def test_first_plugin_samples_on_the_device_only() -> None:
    neuron = {**BASE, "on_device_sampling_config": None}
    assert serving_of(neuron).environment["NEURON_ON_DEVICE_SAMPLING_DISABLED"] == "1"
    with pytest.raises(ConfigError) as caught:
        serving_of(neuron, first=True)
    assert caught.value.field == "on_device_sampling_config"


def test_forks_older_than_the_plugin_are_named(bench: Bench) -> None:
    done = bench("env", "0" * 12, "--for=vllm:0.9.0", "--json")
    assert done.code == 5
    assert "fork" in done.document["error"]["message"]


@pytest.mark.parametrize(
    ("more", "field"),
    [
        ({"padding_side": "left"}, "padding_side"),
        ({"ctx_batch_size": 4}, "ctx_batch_size"),
        ({"tkg_batch_size": 2}, "tkg_batch_size"),
        ({"pp_degree": 2}, "pp_degree"),
        ({"is_medusa": True}, "is_medusa"),
        ({"lora_config": {"max_loras": 2}}, "lora_config"),
        ({"kv_quant_config": {"k": 1}}, "kv_quant_config"),
        ({"speculation_length": 5}, "enable_fused_speculation"),
        (
            {
                "is_block_kv_layout": True,
                "is_prefix_caching": True,
                "pa_block_size": 32,
                "pa_num_blocks": 256,
            },
            "pa_num_blocks",
        ),
        (
            {"is_block_kv_layout": True, "pa_block_size": 32, "pa_num_blocks": 999},
            "is_block_kv_layout",
        ),
    ],
)
def test_what_the_plugin_cannot_serve(more: dict[str, Any], field: str) -> None:
    with pytest.raises(ConfigError) as caught:
        serving_of({**BASE, **more})
    assert caught.value.field == field


# --- what the plugin makes of a directory that is not whole


@pytest.mark.parametrize(
    ("remove", "error"),
    [
        ("neuron_config.json", FileNotFoundError),
        ("model.pt", ValueError),
        ("weights/tp1_sharded_checkpoint.safetensors", FileNotFoundError),
    ],
)
def test_an_export_has_nothing_that_starts_a_silent_compile(
    bench: Bench, remove: str, error: type[Exception]
) -> None:
    """Each of these the plugin answers by compiling into the directory; a whole one has none."""
    key = bench.build("--shard", "--tensor-parallel-size=2")
    directory = bench.export(key, "served", "--shards", "--copy")
    loaded(directory)
    (directory / remove).unlink()
    with pytest.raises(error):
        loaded(directory)
