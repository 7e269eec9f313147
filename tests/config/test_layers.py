from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from neuroncompile.config import NeuronConfig
from neuroncompile.errors import ConfigError

Resolve = Callable[..., NeuronConfig]


def test_defaults_with_their_origins(resolve: Resolve) -> None:
    assert resolve().rows() == [
        ("batch_size", 1, "default"),
        ("padding_side", "right", "default"),
        ("seq_len", 4096, "default, min(max positions 8192, 4096)"),
        ("torch_dtype", "bfloat16", "model"),
        ("max_context_length", 4096, "default, derived from seq_len"),
        ("ctx_batch_size", 1, "default, derived from batch_size"),
        ("tkg_batch_size", 1, "default, derived from batch_size"),
        ("is_continuous_batching", False, "default, derived from batch_size"),
        ("enable_bucketing", True, "default"),
        (
            "context_encoding_buckets",
            [128, 256, 512, 1024, 2048, 4096],
            "default, derived from max_context_length",
        ),
        (
            "token_generation_buckets",
            [128, 256, 512, 1024, 2048, 4096],
            "default, derived from seq_len",
        ),
        ("tp_degree", 1, "default"),
    ]


@pytest.mark.parametrize(
    ("positions", "seq_len", "origin"),
    [
        (2048, 2048, "min(max positions 2048, 4096)"),
        (131072, 4096, "min(max positions 131072, 4096)"),
        (None, 4096, "names no max positions"),
    ],
)
def test_default_length(resolve: Resolve, positions: Any, seq_len: int, origin: str) -> None:
    config = resolve(model={"model_type": "llama", "max_position_embeddings": positions})
    assert config["seq_len"] == seq_len
    assert origin in config.origin("seq_len")


def test_each_layer_beats_the_one_before(resolve: Resolve) -> None:
    recipe = {"seq_len": 512, "batch_size": 2, "tp_degree": 2}
    flags = {"seq_len": ("--seq-len", 1024), "batch_size": ("--batch-size", 4)}
    config = resolve("seq_len=2048", config=recipe, flags=flags)
    assert (config["seq_len"], config.origin("seq_len")) == (2048, "--set")
    assert (config["batch_size"], config.origin("batch_size")) == (4, "flag --batch-size")
    assert (config["tp_degree"], config.origin("tp_degree")) == (2, "recipe base")


def test_a_flag_that_was_not_given_sets_nothing(resolve: Resolve) -> None:
    config = resolve(config={"seq_len": 512}, flags={"seq_len": ("--seq-len", None)})
    assert config.origin("seq_len") == "recipe base"


def test_nested_layers_keep_their_siblings(resolve: Resolve) -> None:
    recipe = {"on_device_sampling_config": {"do_sample": True, "top_k": 50}}
    config = resolve("on_device_sampling_config.top_k=1", config=recipe)
    assert config["on_device_sampling_config"] == {"do_sample": True, "top_k": 1}
    assert config.origin("on_device_sampling_config.do_sample") == "recipe base"
    assert config.origin("on_device_sampling_config.top_k") == "--set"


def test_an_object_and_dotted_names_are_one(resolve: Resolve) -> None:
    whole = resolve('on_device_sampling_config={"top_k": 5, "dynamic": true}')
    dotted = resolve("on_device_sampling_config.dynamic=true", "on_device_sampling_config.top_k=5")
    assert whole.plain() == dotted.plain()
    assert list(whole["on_device_sampling_config"]) == list(dotted["on_device_sampling_config"])


def test_null_withdraws_an_earlier_layer(resolve: Resolve) -> None:
    recipe = {
        "context_encoding_buckets": [128, 512],
        "on_device_sampling_config": {"top_k": 1},
        "torch_dtype": "float32",
    }
    sets = ("context_encoding_buckets=null", "on_device_sampling_config=null", "torch_dtype=auto")
    assert resolve(*sets, config=recipe).plain() == resolve().plain()


@pytest.mark.parametrize(
    "sets",
    [
        ("seq_len=4096", "max_context_length=4096", "batch_size=1"),
        ("context_encoding_buckets=[4096,2048,1024,512,256,128]",),
        ("torch_dtype=torch.bfloat16", "enable_bucketing=true"),
        ("padding_side=right", "ctx_batch_size=1", "is_continuous_batching=false"),
    ],
)
def test_spelling_a_default_changes_nothing(resolve: Resolve, sets: tuple[str, ...]) -> None:
    assert resolve(*sets).plain() == resolve().plain()


def test_derived_values_follow_what_was_set(resolve: Resolve) -> None:
    config = resolve("seq_len=300", "max_context_length=200", "batch_size=4")
    assert config["context_encoding_buckets"] == [128, 200]
    assert config["token_generation_buckets"] == [128, 300]
    assert config["is_continuous_batching"] is True
    assert (config["ctx_batch_size"], config["tkg_batch_size"]) == (1, 4)
    static = resolve("batch_size=4", "is_continuous_batching=false")
    assert static["ctx_batch_size"] == 4


def test_without_bucketing_there_is_one_bucket(resolve: Resolve) -> None:
    config = resolve("enable_bucketing=false", "seq_len=2048", "max_context_length=1024")
    assert config["context_encoding_buckets"] == [1024]
    assert config["token_generation_buckets"] == [2048]


@pytest.mark.parametrize(
    "sets", ["is_prefix_caching=true", "chunked_prefill_config.max_num_seqs=8"]
)
def test_paired_buckets_are_left_to_nxdi(resolve: Resolve, sets: str) -> None:
    assert "context_encoding_buckets" not in resolve(sets)


@pytest.mark.parametrize(
    ("dtype", "sets", "expected", "origin"),
    [
        ("float16", (), "float16", "model"),
        (None, (), "bfloat16", "default, the model names no dtype"),
        ("int8", (), "bfloat16", "default, the model names no dtype"),
        ("bfloat16", ("torch_dtype=float32",), "float32", "--set"),
        ("float32", ("torch_dtype=auto",), "float32", "model"),
    ],
)
def test_dtype(
    resolve: Resolve, dtype: str | None, sets: tuple[str, ...], expected: str, origin: str
) -> None:
    config = resolve(*sets, dtype=dtype)
    assert (config["torch_dtype"], config.origin("torch_dtype")) == (expected, origin)


def test_lnc_is_the_targets(resolve: Resolve) -> None:
    assert "logical_nc_config" not in resolve()
    config = resolve(target="trn2")
    assert config["logical_nc_config"] == config.target.lnc == 2
    assert config.origin("logical_nc_config") == "default of trn2"
    narrow = resolve("logical_nc_config=1", target="trn2.48xlarge")
    assert narrow.target.spec() == {"platform": "trn2", "lnc": 1}
    assert narrow.target.instance == "trn2.48xlarge"


def test_lnc_from_the_environment(resolve: Resolve) -> None:
    both = {"NEURON_RT_VIRTUAL_CORE_SIZE": "2", "NEURON_LOGICAL_NC_CONFIG": "1"}
    config = resolve(target="trn2", environ=both)
    assert config.target.lnc == 1
    assert config.origin("logical_nc_config") == "environment NEURON_LOGICAL_NC_CONFIG"
    assert resolve("logical_nc_config=2", target="trn2", environ=both).target.lnc == 2
    assert "logical_nc_config" not in resolve(environ=both)  # the cpu target has no cores to join
    with pytest.raises(ConfigError, match="environment NEURON_LOGICAL_NC_CONFIG"):
        resolve(target="trn2", environ={"NEURON_LOGICAL_NC_CONFIG": "two"})


def test_lnc_the_chip_lacks(resolve: Resolve) -> None:
    for target in ("trn1", "cpu:x86-64-v3"):
        with pytest.raises(ConfigError) as caught:
            resolve("logical_nc_config=2", target=target)
        assert caught.value.field == "logical_nc_config"


@pytest.mark.parametrize(
    ("text", "suggestion"),
    [
        ("seqlen=4096", "seq_len"),
        ("seq-len=4096", "seq_len"),
        ("batchsize=1", "batch_size"),
        ("tp_degre=1", "tp_degree"),
        ("context_encoding_bucket=[128]", "context_encoding_buckets"),
        ("on_device_sampling_config.topk=1", "on_device_sampling_config.top_k"),
        ("on_device_sampling.top_k=1", "on_device_sampling_config"),
        ("top_k=1", "on_device_sampling_config.top_k"),
        ("lora_config.max_lora=2", "lora_config.max_loras"),
        ("tensor_parallel_size=2", "tp_degree"),
        ("max_model_len=100", "seq_len"),
        ("lora_serving_config.max_loras=1", "lora_config"),
        ("logical_neuron_cores=2", "logical_nc_config"),
        ("zzz=1", None),
    ],
)
def test_unknown_keywords_at_any_depth(resolve: Resolve, text: str, suggestion: str | None) -> None:
    with pytest.raises(ConfigError) as caught:
        resolve(text)
    error = caught.value
    assert error.exit_code == 5
    assert error.field == text.partition("=")[0][: len(str(error.field))]
    assert error.details["suggestion"] == suggestion
    assert (suggestion or "--allow-unknown") in str(error.hint)


def test_unknown_keywords_in_a_recipe_name_it(resolve: Resolve) -> None:
    with pytest.raises(ConfigError, match="recipe base"):
        resolve(config={"seqlen": 4})


def test_a_keyword_of_another_family(resolve: Resolve, llama: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="qwen3_moe"):
        resolve("moe_tp_degree=2")
    assert resolve("moe_tp_degree=2", model=llama | {"model_type": "qwen3_moe"})
    assert resolve("moe_tp_degree=2", model=llama | {"model_type": "somebodys_own"})


def test_allowed_unknown_keywords_are_kept_and_hashed(resolve: Resolve) -> None:
    sets = ("new_thing=4", "newer.a.b=[1]", "newer.c=null", "on_device_sampling_config.new=1")
    config = resolve(*sets, allow_unknown=True)
    assert config["new_thing"] == 4
    assert config["newer"] == {"a": {"b": [1]}, "c": None}
    assert config["on_device_sampling_config"] == {"new": 1}
    assert config.origin("newer.a.b") == "--set"
    assert config.plain() != resolve().plain()
    reordered = resolve(*reversed(sets), allow_unknown=True)
    assert list(reordered.plain()) == list(config.plain())


@pytest.mark.parametrize(
    ("text", "field"),
    [
        ('batch_size="4"', "batch_size"),
        ("batch_size=0", "batch_size"),
        ("seq_len=None", "seq_len"),
        ("seq_len=null", "seq_len"),
        ("seq_len=-1", "seq_len"),
        ("seq_len.x=1", "seq_len"),
        ("context_encoding_buckets=128, ,512", "context_encoding_buckets"),
        ("on_device_sampling_config=3", "on_device_sampling_config"),
        ("on_device_sampling_config.top_k=1.5", "on_device_sampling_config.top_k"),
        ("on_device_sampling_config.top_k.x=1", "on_device_sampling_config.top_k"),
    ],
)
def test_refused_values(resolve: Resolve, text: str, field: str) -> None:
    with pytest.raises(ConfigError) as caught:
        resolve(text)
    assert caught.value.field == field
    assert caught.value.hint


def test_every_entry_way_gives_the_same_config(resolve: Resolve) -> None:
    values = {"batch_size": 4, "context_encoding_buckets": [128, 512], "seq_len": 512}
    by_recipe = resolve(config=values)
    by_flags = resolve(flags={name: (f"--{name}", value) for name, value in values.items()})
    by_set = resolve("batch_size=4", "context_encoding_buckets=128,512", "seq_len=512")
    assert by_recipe.plain() == by_flags.plain() == by_set.plain()
    assert list(by_recipe) == list(by_flags) == list(by_set)


def test_values_read_as_a_mapping(resolve: Resolve) -> None:
    config = resolve("on_device_sampling_config.top_k=1")
    assert dict(config) == config.plain()
    assert len(config) == len(config.plain())
    assert config.get("max_length") is None
    with pytest.raises(KeyError):
        config.origin("max_length")
    assert ("on_device_sampling_config.top_k", 1, "--set") in config.rows()
