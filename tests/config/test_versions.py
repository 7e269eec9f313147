from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from neuroncompile.config import NeuronConfig, Toolchain, check_config
from neuroncompile.config.releases import RELEASES, sdk_packages
from neuroncompile.config.renamed import RENAMED
from neuroncompile.config.schema import CLASSES
from neuroncompile.config.versions import GONE, SINCE, check_versions, nxdi_version, since
from neuroncompile.errors import ConfigError

Resolve = Callable[..., NeuronConfig]

ROWS = [
    (owner, version, name)
    for owner, versions in SINCE.items()
    for version, names in versions.items()
    for name in names.split()
]


def test_the_table_names_keywords_of_the_schema_once() -> None:
    for owner, rows in CLASSES.items():
        listed = [name for row_owner, _, name in ROWS if row_owner == owner]
        assert len(listed) == len(set(listed))
        assert set(listed) <= {row[0] for row in rows}


def test_versions_are_read_off_the_packages() -> None:
    assert nxdi_version({"neuronx-distributed-inference": "0.9.17334"}) == (0, 9)
    assert nxdi_version({"neuronx-distributed-inference": "0.10.18399"}) == (0, 10)
    assert nxdi_version({"neuronx-distributed-inference": "dev"}) is None
    assert nxdi_version({}) is None
    for sdk in RELEASES:
        assert nxdi_version(sdk_packages(sdk)) is not None


@pytest.mark.parametrize(
    ("path", "value", "first"),
    [
        ("kv_quant_config.direct_cast", True, (0, 8)),
        ("enable_ve_data_parallel", True, (0, 9)),
        ("token_generation_batches", [1], (0, 8)),
        ("is_eagle3", True, (0, 7)),
        ("cp_degree", 2, (0, 4)),
        ("chunked_prefill_config.max_num_seqs", 4, (0, 4)),
        ("moe_ep_degree", 4, (0, 6)),
        ("hybrid_sharding_config.moe_cte_tp_degree", 4, (0, 6)),
        ("lora_config.max_cpu_loras", 4, (0, 7)),
        ("lora_config.enable_base_model_only", True, (0, 9)),
        ("on_device_sampling_config.sampling_dp_degree", 2, (0, 8)),
        ("on_device_sampling_config.top_k_kernel_enabled", False, (0, 5)),
        ("async_mode", True, (0, 2)),
        ("vision_neuron_config.kv_quant_config.direct_cast", True, (0, 8)),
        ("text_neuron_config.async_mode", True, (0, 2)),
    ],
)
def test_what_a_release_would_drop_is_refused(
    resolve: Resolve, path: str, value: Any, first: tuple[int, int]
) -> None:
    tree: Any = value
    for name in reversed(path.split(".")):
        tree = {name: tree}
    model = {"model_type": "llama4"}
    config = resolve(config=tree, target="trn2", model=model)
    check_versions(config, first)
    check_versions(config, (0, 10))
    check_versions(config, None)
    before = (0, first[1] - 1)
    with pytest.raises(ConfigError) as caught:
        check_versions(config, before)
    error = caught.value
    assert f"NxD Inference 0.{before[1]}" in str(error)
    assert error.field == path
    assert f"SDK 2.{first[1] + 20}" in str(error.hint)


def test_our_own_defaults_are_not_held_against_anyone(
    resolve: Resolve, llama: dict[str, Any]
) -> None:
    for sdk in ("2.21", "2.22", "2.24", "2.28"):
        toolchain = Toolchain(f"sdk-{sdk}", "nxdi", sdk_packages(sdk))
        check_config(resolve("batch_size=4", target="trn1"), model=llama, toolchain=toolchain)


def test_the_old_name_is_said(resolve: Resolve) -> None:
    config = resolve("async_mode=true", target="trn2")
    with pytest.raises(ConfigError, match="called async"):
        check_versions(config, (0, 1))


def test_what_is_known_since_the_class(resolve: Resolve) -> None:
    assert since("NeuronConfig", "seq_len") == (0, 1)
    assert since("TextNeuronConfig", "kv_quant_config") == (0, 8)
    assert since("MoETextNeuronConfig", "moe_ep_degree") == (0, 6)


@pytest.mark.parametrize(("old", "now"), [(old, now) for old, (_, now) in GONE.items() if now])
def test_a_name_of_old_is_refused_with_what_took_its_place(
    resolve: Resolve, old: str, now: str
) -> None:
    """No release that is left knows these, so they are misspellings with a hint."""
    path = f"lora_config.{old}" if now.startswith("lora_config.") else old
    with pytest.raises(ConfigError) as caught:
        resolve(f"{path}=1", target="trn2")
    assert caught.value.hint == f"did you mean {now}?"
    assert old in RENAMED


def test_a_name_of_old_without_a_successor_is_to_be_left_out(resolve: Resolve) -> None:
    with pytest.raises(ConfigError) as caught:
        resolve("trace_tokengen_model=false", target="trn2")
    assert caught.value.hint is not None
    assert caught.value.hint.startswith("leave trace_tokengen_model out")
    assert "0.1" in caught.value.hint
