"""Which models a program may be served with."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from neuroncompile.errors import ConfigError
from neuroncompile.keys import canonical, compile_spec
from neuroncompile.models import resolve
from neuroncompile.models.architecture import architecture_of, normalise
from neuroncompile.output import Output
from neuroncompile.pipeline.served_model import (
    checkpoint_directory,
    served_draft,
    served_model,
)
from neuroncompile.settings import Settings, load_settings
from tests.conftest import write_llama


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return load_settings(store=tmp_path / "store")


@pytest.fixture
def output() -> Output:
    return Output(json_mode=True)


def normal(model: Path) -> dict[str, Any]:
    config = json.loads((model / "config.json").read_text())
    architecture = architecture_of(config)
    return {**normalise(config, architecture), "architectures": [architecture.name]}


def program(target: Path, draft: Path) -> dict[str, Any]:
    """The spec of a program with fused speculation."""
    neuron = canonical({"enable_fused_speculation": True, "speculation_length": 3})
    return compile_spec(
        backend="nxdi",
        model=canonical(normal(target)),
        neuron=neuron,
        compiler={"args": [], "env": {}},
        optlevel=None,
        target={"platform": "trn2", "lnc": 2},
        toolchain={},
        fused_speculation=True,
        draft={"model": canonical(normal(draft)), "neuron": neuron},
    )


@pytest.fixture
def small(tmp_path: Path) -> Path:
    return write_llama(tmp_path / "small", num_hidden_layers=1, pad_token_id=2)


@pytest.fixture
def big(tmp_path: Path) -> Path:
    return write_llama(tmp_path / "big", pad_token_id=2)


def test_fine_tunes_of_both_are_served(
    big: Path, small: Path, tmp_path: Path, settings: Settings, output: Output
) -> None:
    spec = program(big, small)
    tuned = write_llama(tmp_path / "tuned", seed=3, pad_token_id=2, eos_token_id=[1, 7])
    other = write_llama(tmp_path / "other", seed=4, num_hidden_layers=1, pad_token_id=2)
    target = served_model(str(tuned), None, spec, settings, output)
    draft = served_draft(str(other), target, spec, settings, output)
    assert target.config["eos_token_id"] == [1, 7]
    assert checkpoint_directory(draft, settings, output, fetch=True) == str(other)


def test_another_draft_is_refused_by_its_field(
    big: Path, small: Path, settings: Settings, output: Output
) -> None:
    spec = program(big, small)
    target = served_model(str(big), None, spec, settings, output)
    for reference in ("self", str(big)):
        with pytest.raises(ConfigError) as caught:
            served_draft(reference, target, spec, settings, output)
        assert caught.value.field == "draft.model.num_hidden_layers"


def test_model_that_is_its_own_draft(big: Path, settings: Settings, output: Output) -> None:
    spec = program(big, big)
    target = served_model(str(big), None, spec, settings, output)
    assert served_draft("self", target, spec, settings, output) is target


def test_padding_token_counts_where_it_stands_in_a_graph(
    big: Path, small: Path, tmp_path: Path, settings: Settings, output: Output
) -> None:
    spec = program(big, small)
    other = write_llama(tmp_path / "padded", pad_token_id=9)
    with pytest.raises(ConfigError) as caught:
        served_model(str(other), None, spec, settings, output)
    assert caught.value.field == "model.pad_token_id"


def test_shipped_weights_need_no_checkpoint(big: Path, settings: Settings, output: Output) -> None:
    model = resolve(str(big), settings)
    assert checkpoint_directory(model, settings, output, fetch=False) == str(big)
