"""Releases of vLLM's plugin against targets and toolchains."""

from __future__ import annotations

import pytest

from neuroncompile.config.vllm_plugins import check_family, check_plugin, is_first, is_fork
from neuroncompile.errors import ConfigError


@pytest.mark.parametrize(
    ("version", "platform"),
    [("0.10.2", "trn3"), ("0.2.0", "trn3"), ("0.16", "inf2"), ("0.5.0", "trn1"), ("0.16", "trn1n")],
)
def test_targets_that_a_release_does_not_run_on(version: str, platform: str) -> None:
    with pytest.raises(ConfigError) as caught:
        check_plugin(version, platform, None)
    assert caught.value.field == "target.platform"
    assert platform not in caught.value.legal


@pytest.mark.parametrize("version", ["0.11", "0.11.0", "0.2", "0.2.0"])
def test_program_of_another_sdk_is_warned_of(version: str) -> None:
    """vLLM's number and the plugin's mean one release."""
    warning = check_plugin(version, "inf2", "0.9.17334")
    assert warning is not None
    assert "SDK 2.26" in warning
    assert "0.9.17334" in warning
    assert check_plugin(version, "inf2", "0.6.10598") is None


def test_nothing_is_said_of_releases_without_documents() -> None:
    assert check_plugin("0.13", "trn3", "0.8.16251") is None


@pytest.mark.parametrize(
    ("version", "first", "fork"),
    [
        ("0.7.2", False, True),
        ("0.9", False, True),
        ("0.10.2", True, False),
        ("0.1.0", True, False),
        ("0.11.0", False, False),
        ("0.2", False, False),
        ("0.16", False, False),
    ],
)
def test_which_plugin_it_is(version: str, first: bool, fork: bool) -> None:
    assert is_first(version) is first
    assert is_fork(version) is fork


@pytest.mark.parametrize(
    ("version", "architecture"),
    [
        ("0.11.0", "Qwen2VLForConditionalGeneration"),
        ("0.2.0", "GptOssForCausalLM"),
        ("0.10.2", "LlavaForConditionalGeneration"),
        ("0.1", "MllamaForConditionalGeneration"),
    ],
)
def test_families_that_a_release_does_not_serve(version: str, architecture: str) -> None:
    with pytest.raises(ConfigError) as caught:
        check_family(version, architecture)
    assert caught.value.field == "model.architectures"
    assert caught.value.value == architecture


@pytest.mark.parametrize(
    ("version", "architecture"),
    [
        ("0.11", "Llama4ForConditionalGeneration"),
        ("0.11", "Qwen3MoeForCausalLM"),
        ("0.10", "GptOssForCausalLM"),
        ("0.16", "Qwen2VLForConditionalGeneration"),
    ],
)
def test_families_that_a_release_may_serve(version: str, architecture: str) -> None:
    check_family(version, architecture)
