"""From Python the same program as from the command line, and the same refusals."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import neuroncompile
from neuroncompile.errors import CacheMissError, ConfigError
from tests.conftest import SMALL, Run

CONFIG = {
    "seq_len": 64,
    "context_encoding_buckets": [16, 64],
    "token_generation_buckets": [64],
}
"""`SMALL`, from Python."""

FUSED: dict[str, Any] = {
    "enable_fused_speculation": True,
    "speculation_length": 5,
    "on_device_sampling_config": {"top_k": 1},
}

OWN = "class NeuronMine:\n    pass\n"


TRN2 = {"target": "trn2", "toolchain": "sdk-2.28"}


def key_from_python(call: Callable[..., Any], model: Path, store: Path, **more: Any) -> str:
    """The key that `build` or `load` looks for in an empty store."""
    with pytest.raises(CacheMissError) as missed:
        call(
            str(model),
            config=CONFIG,
            store=str(store),
            offline=True,
            require_cached=True,
            **more,
        )
    key: str = missed.value.details["key"]
    return key


def key_from_cli(run: Run, model: Path, *args: str) -> str:
    done = run("build", str(model), "--dry-run", "--json", *SMALL, *args)
    assert done.code == 0, done.out
    key: str = done.document["result"]["key"]
    return key


@pytest.fixture
def adapter(tmp_path: Path) -> Path:
    place = tmp_path / "adapter"
    place.mkdir()
    (place / "adapter_model.safetensors").write_bytes(b"weights")
    (place / "adapter_config.json").write_text(
        json.dumps({"peft_type": "LORA", "r": 8, "target_modules": ["q_proj", "v_proj"]})
    )
    return place


def test_companions_and_overrides_are_the_command_lines(
    run: Run, llama: Path, adapter: Path, tmp_path: Path
) -> None:
    store, draft, own = tmp_path / "store", tmp_path / "draft", tmp_path / "own.py"
    shutil.copytree(llama, draft)
    document = json.loads((draft / "config.json").read_text())
    (draft / "config.json").write_text(json.dumps(document | {"intermediate_size": 128}))
    own.write_text(OWN)
    override = f"--override-neuron-config={json.dumps(FUSED)}"
    cases: list[tuple[dict[str, Any], tuple[str, ...]]] = [
        ({}, ()),
        ({"overrides": FUSED, "draft": "self"}, (override, "--draft-model=self")),
        ({"overrides": [FUSED], "draft": str(draft)}, (override, f"--draft-model={draft}")),
        ({"adapters": {"one": str(adapter)}}, (f"--adapter=one={adapter}",)),
        ({"model_class": f"{own}:NeuronMine"}, (f"--model-class={own}:NeuronMine",)),
    ]
    keys = []
    for more, args in cases:
        keys.append(key_from_python(neuroncompile.build, llama, store, **TRN2, **more))
        same = key_from_cli(run, llama, "--target=trn2", "--toolchain=sdk-2.28", *args)
        assert keys[-1] == same, more
    assert len(set(keys)) == len(cases)


@pytest.mark.parametrize("call", [neuroncompile.build, neuroncompile.load])
def test_overrides_lie_over_config_and_the_last_one_wins(
    run: Run, call: Callable[..., Any], llama: Path, tmp_path: Path
) -> None:
    def key(*tables: dict[str, Any]) -> str:
        return key_from_python(call, llama, tmp_path / "s", overrides=tables)

    two, four = key({"batch_size": 2}), key({"batch_size": 4})
    assert key({"batch_size": 2}, {"batch_size": 4}) == four
    assert key({"batch_size": 4}, {"batch_size": 2}) == two
    assert two != four
    assert four == key_from_cli(run, llama, '--override-neuron-config={"batch_size": 4}')
    assert key({"seq_len": 32, "context_encoding_buckets": [16, 32]},
               {"token_generation_buckets": [32]}) == key_from_cli(
        run, llama, "--set=seq_len=32", "--set=context_encoding_buckets=[16,32]",
        "--set=token_generation_buckets=[32]",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("more", "field"),
    [
        ({"overrides": '{"batch_size": 4}'}, "overrides"),
        ({"overrides": [4]}, "overrides"),
        ({"overrides": 4}, "overrides"),
        ({"overrides": {"torch_dtype": object()}}, "overrides"),
        ({"adapters": ["one=there"]}, "adapters"),
        ({"adapters": {"a=b": "there"}}, "adapters"),
        ({"adapters": {"one": Path("there")}}, "adapters"),
        ({"adapters": {"one": ""}}, "adapters"),
        ({"draft": "self", "target": "cpu"}, "draft"),
        ({"adapters": {"one": "org/a"}, "target": "cpu"}, "adapters"),
        ({"model_class": "a:B", "target": "cpu"}, "model.class"),
    ],
)
@pytest.mark.parametrize("call", [neuroncompile.build, neuroncompile.load])
def test_what_cannot_be_is_refused_by_name(
    call: Callable[..., Any], llama: Path, tmp_path: Path, more: dict[str, Any], field: str
) -> None:
    given = {"target": "trn2", "toolchain": "sdk-2.28", "config": CONFIG, **more}
    if given["target"] == "cpu":
        given["toolchain"] = None
    with pytest.raises(ConfigError) as refused:
        call(str(llama), store=str(tmp_path / "s"), offline=True, require_cached=True, **given)
    assert refused.value.field == field
    assert refused.value.hint
