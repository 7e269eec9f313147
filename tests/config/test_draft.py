"""The neuron config of a draft."""

from __future__ import annotations

from neuroncompile.config.draft import draft_config

TARGET = {
    "seq_len": 64,
    "tp_degree": 8,
    "speculation_length": 5,
    "enable_fused_speculation": True,
    "trace_tokengen_model": False,
    "sequence_parallel_enabled": True,
}


def test_a_draft_proposes_one_token_at_a_time() -> None:
    draft = draft_config(TARGET)
    assert draft == {
        "seq_len": 64,
        "tp_degree": 8,
        "speculation_length": 0,
        "enable_fused_speculation": False,
        "trace_tokengen_model": True,
        "sequence_parallel_enabled": True,
    }
    assert TARGET["speculation_length"] == 5


def test_eagle_shares_the_targets_loop() -> None:
    draft = draft_config({**TARGET, "enable_eagle_speculation": True})
    assert (draft["speculation_length"], draft["is_eagle_draft"]) == (5, True)
    assert draft["sequence_parallel_enabled"] is False


def test_its_own_modules_stay_unquantised() -> None:
    target = {
        **TARGET,
        "modules_to_not_convert": ["lm_head"],
        "draft_model_modules_to_not_convert": ["fc"],
    }
    draft = draft_config(target)
    assert draft["modules_to_not_convert"] == ["fc"]
    assert "draft_model_modules_to_not_convert" not in draft


def test_overrides_are_last() -> None:
    assert draft_config(TARGET, overrides={"tp_degree": 1})["tp_degree"] == 1


def test_keyword_of_an_older_release_is_not_brought_in() -> None:
    """NxDI dropped `trace_tokengen_model` after 0.1; a worker would refuse it."""
    assert "trace_tokengen_model" not in draft_config({"speculation_length": 5})
