"""Equal keys mean equal constructed configs and equal compiler flags, on NxDI's own classes.

Over the schema's keywords one by one, over two checkpoints, two homes, fine-tunes with other
generation fields, other spellings, and fused speculation with another padding token. A config that
is constructed equal under another key is an over-miss: a compile too many, never a wrong program.
Those are counted, and shown at the end of the run.
"""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from neuroncompile.backends.nxdi.inference_config import without_places
from neuroncompile.backends.nxdi.process import OrderFailed, Worker
from neuroncompile.config.schema import CLASSES
from neuroncompile.errors import NeuronCompileError
from tests.backends.nxdi import vendor
from tests.backends.nxdi.test_configure import configured, planned, worker
from tests.backends.nxdi.tiny import CONFIGS, MODELS

pytestmark = [pytest.mark.neuron, pytest.mark.slow, vendor.needed]

__all__ = ["worker"]  # the fixture

START: dict[str, Any] = {**CONFIGS["serving"], "seq_len": 256}
FUSED: dict[str, Any] = {
    "seq_len": 256,
    "torch_dtype": "float32",
    "speculation_length": 4,
    "enable_fused_speculation": True,
    "on_device_sampling_config": {"do_sample": False, "top_k": 1},
}


def variants(value: Any, kind: str) -> list[Any]:
    """Other values to try for a keyword, by its type."""
    if kind == "bool":
        return [not value]
    if kind == "int":
        return [2 if value in (None, 1) else int(value) * 2, 1]
    if kind == "float":
        return [0.5]
    return []


def changes() -> Iterator[tuple[str, dict[str, Any]]]:
    """One change of the neuron config at a time."""
    for name, kind, default, _ in CLASSES["NeuronConfig"]:
        for value in variants(None if isinstance(default, str) else default, kind):
            yield f"{name}={value!r}", {name: value}


MODEL_CHANGES: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
    "as it is": lambda m: m,
    "other eos": lambda m: {**m, "eos_token_id": [2, 7]},
    "other bos": lambda m: {**m, "bos_token_id": 5},
    "other pad": lambda m: {**m, "pad_token_id": 9},
    "generation": lambda m: {**m, "temperature": 0.5, "top_p": 0.9, "do_sample": True},
    "saved elsewhere": lambda m: {**m, "_name_or_path": "/a", "transformers_version": "4.30"},
    "without cache": lambda m: {**m, "use_cache": False},
    "other spread": lambda m: {**m, "initializer_range": 0.5},
    "nulls": lambda m: {**m, "rope_scaling": None, "quantization_config": None},
    "version 5": lambda m: {
        **{k: v for k, v in m.items() if k not in ("rope_theta", "torch_dtype")},
        "rope_parameters": {"rope_theta": m["rope_theta"], "rope_type": "default"},
        "dtype": m["torch_dtype"],
    },
    "other theta": lambda m: {**m, "rope_theta": 20000.0},
    "other width": lambda m: {**m, "intermediate_size": 256},
    "other eps": lambda m: {**m, "rms_norm_eps": 1e-6},
    "unknown field": lambda m: {**m, "made_up": 3},
}


class Groups:
    """Everything that was tried, by key and by what was constructed."""

    def __init__(self, process: Worker, place: Path) -> None:
        self.worker, self.place = process, place
        self.by_key: dict[str, set[str]] = defaultdict(set)
        self.keys_of: dict[str, set[str]] = defaultdict(set)
        self.names: dict[str, list[str]] = defaultdict(list)
        self.tried = self.refused = self.nxdi_refused = 0

    def add(self, name: str, model: dict[str, Any], neuron: dict[str, Any], **more: Any) -> None:
        self.tried += 1
        place = self.place / str(self.tried)
        try:
            plan = planned(model, neuron, place / "checkpoint", **more)
        except NeuronCompileError:
            self.refused += 1
            return
        try:
            made = configured(self.worker, plan, place / "compile")
        except OrderFailed:
            self.nxdi_refused += 1
            return
        made["config"] = without_places(made["config"])
        digest = hashlib.sha256(json.dumps(made, sort_keys=True).encode()).hexdigest()
        self.by_key[plan.key].add(digest)
        self.keys_of[digest].add(plan.key)
        self.names[plan.key].append(name)

    def check(self) -> None:
        unsound = {key[:12]: self.names[key] for key, made in self.by_key.items() if len(made) > 1}
        assert not unsound, f"equal keys, other configs: {unsound}"

    @property
    def over_misses(self) -> list[list[str]]:
        """Names of configs that are constructed equal and have different keys."""
        return [
            [self.names[key][0] for key in keys] for keys in self.keys_of.values() if len(keys) > 1
        ]


def test_keywords_one_by_one(
    worker: Worker, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    groups = Groups(worker, tmp_path)
    groups.add("start", MODELS["llama"], START)
    for name, change in changes():
        groups.add(name, MODELS["llama"], {**START, **change})
    groups.check()
    built = groups.tried - groups.refused - groups.nxdi_refused
    more = groups.over_misses
    record_property(
        "counts",
        f"key soundness, keywords: {groups.tried} configs, {built} constructed, "
        f"{groups.refused} refused here, {groups.nxdi_refused} by NxDI alone; "
        f"{len(more)} over-misses",
    )
    assert built > 60
    assert len(more) < 10, more


@pytest.mark.parametrize("family", ["llama", "qwen3", "mixtral"])
def test_fine_tunes_homes_and_spellings(
    family: str,
    worker: Worker,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    record_property: Callable[[str, object], None],
) -> None:
    groups = Groups(worker, tmp_path)
    for home in ("one", "two"):
        (tmp_path / home).mkdir()
        monkeypatch.setenv("HOME", str(tmp_path / home))
        monkeypatch.chdir(tmp_path / home)
        for name, change in MODEL_CHANGES.items():
            groups.add(name, change(MODELS[family]), START)
    groups.check()
    first = next(key for key, names in groups.names.items() if "as it is" in names)
    same = set(groups.names[first])
    assert same == set(MODEL_CHANGES) - {
        "other theta",
        "other width",
        "other eps",
        "unknown field",
    }
    record_property(
        "counts",
        f"key soundness, fine-tunes of {family}: {groups.tried} configs, {len(groups.by_key)} "
        f"keys; {len(groups.over_misses)} over-misses",
    )


def test_padding_token_counts_under_fused_speculation(worker: Worker, tmp_path: Path) -> None:
    """There it is a constant of the graph; elsewhere it is nothing."""
    groups = Groups(worker, tmp_path)
    for pad in (0, 5):
        model = {**MODELS["llama"], "pad_token_id": pad}
        groups.add(f"fused, pad {pad}", model, FUSED, draft="self")
        groups.add(f"plain, pad {pad}", model, START)
    groups.check()
    assert groups.refused == groups.nxdi_refused == 0
    assert sorted(map(len, groups.names.values())) == [1, 1, 2]


def test_rank_and_modules_of_adapters_count(worker: Worker, tmp_path: Path) -> None:
    groups = Groups(worker, tmp_path)
    lora = {"max_loras": 2, "max_lora_rank": 8, "target_modules": ["q_proj"]}
    changes: list[dict[str, Any]] = [
        {},
        {"max_lora_rank": 16},
        {"max_loras": 3},
        {"target_modules": ["q_proj", "v_proj"]},
    ]
    for change in changes:
        groups.add(str(change), MODELS["llama"], {**START, "lora_config": {**lora, **change}})
    groups.check()
    assert groups.refused == groups.nxdi_refused == 0
    assert len(groups.by_key) == len(groups.keys_of) == 4
