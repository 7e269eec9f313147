from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from neuroncompile.config import NeuronConfig
from neuroncompile.config.releases import RELEASES, sdk_packages
from neuroncompile.config.windows import (
    WINDOWS,
    applies,
    check_windows,
    sdk_of,
)
from neuroncompile.errors import ConfigError

Resolve = Callable[..., NeuronConfig]


@pytest.mark.parametrize("sdk", RELEASES)
def test_the_sdk_is_read_off_nxdi(sdk: str) -> None:
    found = sdk_of(sdk_packages(sdk))
    major, minor = (int(part) for part in sdk.split(".")[:2])
    assert found == ((2, 30) if (major, minor) == (2, 31) else (major, minor))


@pytest.mark.parametrize("version", ["", "0", "1.0", "dev"])
def test_an_unknown_nxdi_has_no_sdk(version: str) -> None:
    assert sdk_of({"neuronx-distributed-inference": version}) is None
    assert sdk_of({}) is None


# (SDK, target, family, sets) → the field refused, or words of the warnings, or nothing
ROWS = [
    ("2.28", "trn1", "llama", (), None, ()),
    ("2.28", "inf2", "llama", (), None, ()),
    ("2.29", "trn1", "llama", (), "target", ()),
    ("2.29", "trn1n", "llama", (), "target", ()),
    ("2.29", "inf2", "llama", (), "target", ()),
    ("2.31", "inf2", "llama", (), "target", ()),
    ("2.29", "trn2", "llama", (), None, ()),
    ("2.26", "trn3", "llama", (), "target", ()),
    ("2.27", "trn3", "llama", (), None, ()),
    ("2.28", "trn2", "qwen3_vl", ("seq_len=32769",), "seq_len", ()),
    ("2.28", "trn2", "qwen3_vl", ("seq_len=32768",), None, ()),
    ("2.29", "trn2", "qwen3_vl", ("seq_len=32769",), None, ()),
    ("2.28", "trn2", "qwen2_vl", ("vision_neuron_config.batch_size=2",),
     "vision_neuron_config.batch_size", ()),
    ("2.28", "trn2", "qwen2_vl", ("vision_neuron_config.batch_size=1",), None, ()),
    ("2.28", "trn2", "pixtral", ("batch_size=33",), "batch_size", ()),
    ("2.28", "trn2", "pixtral", ("batch_size=32",), None, ()),
    ("2.28", "trn2", "llava", ("seq_len=10241",), "seq_len", ()),
    ("2.28", "trn2", "llava", ("seq_len=10240",), None, ()),
    ("2.24", "trn1", "llama", ("seq_len=8192", "context_encoding_buckets=[8192]"), None,
     ("device memory",)),
    ("2.24", "trn1", "llama", ("token_generation_buckets=[4096]",), None, ()),
    ("2.25", "trn1", "llama", ("seq_len=8192",), None, ()),
    ("2.26", "trn1", "llama", ("batch_size=32",), None, ("save_sharded_checkpoint",)),
    ("2.26", "trn1", "llama", ("batch_size=32", "save_sharded_checkpoint=true"), None, ()),
    ("2.26", "trn1", "llama", ("batch_size=31",), None, ()),
    ("2.27", "trn2", "qwen3_moe", (), None, ("not fully optimised",)),
    ("2.27", "trn1", "qwen3_moe", (), None, ()),
    ("2.27", "trn2", "pixtral", (), None, ("not fully optimised",)),
    ("2.28", "trn2", "qwen3_moe", (), "batch_size", ()),
    ("2.28", "trn2", "qwen3_moe", ("batch_size=15",), "batch_size", ()),
    ("2.28", "trn2", "qwen3_moe", ("batch_size=16",), None, ()),
    ("2.29", "trn2", "qwen3_moe", (), None, ("decode more slowly",)),
    ("2.30", "trn2", "qwen3_moe", (), None, ("0.10",)),
    ("2.29", "trn2", "llama", ("on_device_sampling_config.top_k_kernel_enabled=false",), None,
     ("accuracy issue",)),
    ("2.29", "trn2", "llama",
     ("on_device_sampling_config.top_k_kernel_enabled=false", "batch_size=5"), None, ()),
    ("2.29", "trn2", "llama", ("on_device_sampling_config.top_k_kernel_enabled=true",), None, ()),
    ("2.29", "trn2", "mixtral", (), None, ("best pinned at SDK 2.28",)),
    ("2.28", "trn2", "mixtral", (), None, ()),
    ("2.31", "trn2", "llama", (), None, ("0.10",)),
    ("2.30", "trn2", "dbrx", (), None, ("best pinned", "0.10")),
    ("2.29", "cpu:x86-64-v3", "mixtral", (), None, ()),
]  # fmt: skip


@pytest.mark.parametrize(("sdk", "target", "family", "sets", "refused", "warned"), ROWS)
def test_row_by_row(
    resolve: Resolve,
    llama: dict[str, Any],
    sdk: str,
    target: str,
    family: str,
    sets: tuple[str, ...],
    refused: str | None,
    warned: tuple[str, ...],
) -> None:
    config = resolve(*sets, target=target, model=llama | {"model_type": family})
    packages = sdk_packages(sdk)

    def check() -> list[str]:
        return check_windows(config, family=family, target=config.target, packages=packages)

    if refused is not None:
        with pytest.raises(ConfigError) as caught:
            check()
        assert caught.value.field == refused
        assert "2.2" in f"{caught.value} {caught.value.hint}"
        return
    warnings = check()
    assert len(warnings) == len(warned)
    for warning, words in zip(warnings, warned, strict=True):
        assert words in warning


def test_every_window_is_hit_by_a_row_and_missed_by_one(
    resolve: Resolve, llama: dict[str, Any]
) -> None:
    cases = []
    for sdk, target, family, sets, _, _ in ROWS:
        config = resolve(*sets, target=target, model=llama | {"model_type": family})
        version = sdk_of(sdk_packages(sdk))
        assert version is not None
        cases.append((config, family, config.target, version))
    for window in WINDOWS:
        hits = [applies(window, *case) for case in cases]
        assert not all(hits)
        assert any(hits)
        assert window.since <= window.until
        assert window.fix
