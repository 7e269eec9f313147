"""`explain` names what was changed, and not all that comes of it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from neuroncompile.pipeline.changes import changes, in_words
from neuroncompile.pipeline.plan import make_plan
from neuroncompile.pipeline.request import BuildRequest
from neuroncompile.settings import load_settings

RECIPE = """
schema = 1
[model]
ref = "example/llama"
[model.facts]
architectures = ["LlamaForCausalLM"]
model_type = "llama"
dtype = "bfloat16"
hidden_size = 4096
intermediate_size = 14336
num_hidden_layers = 32
num_attention_heads = 32
num_key_value_heads = 8
vocab_size = 128256
max_position_embeddings = 131072
rms_norm_eps = 1e-5
[target]
platform = "trn2"
[toolchain]
sdk = "2.29"
[config]
tp_degree = 8
"""
Spec = Callable[..., dict[str, Any]]

SINGLE = [
    ("seq_len", 2048, "neuron.seq_len"),
    ("batch_size", 4, "neuron.batch_size"),
    ("torch_dtype", "float32", "neuron.torch_dtype"),
    ("max_context_length", 512, "neuron.max_context_length"),
    ("enable_bucketing", False, "neuron.enable_bucketing"),
    ("sequence_parallel_enabled", True, "neuron.sequence_parallel_enabled"),
    ("token_generation_buckets", [1024, 4096], "neuron.token_generation_buckets"),
]


@pytest.fixture
def spec(tmp_path: Path) -> Spec:
    """The spec of one recipe with some keywords set."""
    recipe = tmp_path / "llama.toml"
    recipe.write_text(RECIPE)

    def resolved(**changed: Any) -> dict[str, Any]:
        flags = {name: ("--set", value) for name, value in changed.items()}
        request = BuildRequest(model=str(recipe), flags=flags)
        return dict(make_plan(request, load_settings(), from_facts=True).spec)

    return resolved


@pytest.mark.parametrize(("name", "value", "field"), SINGLE, ids=lambda v: str(v)[:30])
def test_one_changed_field_is_named_alone(spec: Spec, name: str, value: Any, field: str) -> None:
    told = changes(spec(), spec(**{name: value}))
    assert [change.path for change in told if not change.follows] == [field]


def test_what_was_set_apart_does_not_follow(spec: Spec) -> None:
    left, right = spec(), spec(batch_size=4, tkg_batch_size=2)
    own = [change.path for change in changes(left, right) if not change.follows]
    assert own == ["neuron.batch_size", "neuron.tkg_batch_size"]


def test_in_words(spec: Spec) -> None:
    told = changes(spec(), spec(batch_size=4))
    assert in_words(told) == (
        "neuron.batch_size 1 → 4 (and so is_continuous_batching, tkg_batch_size)"
    )


def test_another_target_or_level_is_named(spec: Spec) -> None:
    left = spec()
    right = {**left, "optlevel": "2", "target": {"platform": "trn3", "lnc": 1}}
    paths = [change.path for change in changes(left, right)]
    assert paths == ["optlevel", "target.lnc", "target.platform"]


@pytest.mark.parametrize("odd", [{}, {"seq_len": "many"}, {"batch_size": None}, []])
def test_an_odd_spec_is_compared_all_the_same(spec: Spec, odd: Any) -> None:
    left = spec()
    assert changes(left, {**left, "neuron": odd})
    assert changes({**left, "neuron": odd}, left)
