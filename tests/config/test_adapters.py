from __future__ import annotations

from typing import Any

import pytest

from neuroncompile.config.adapters import Adapter, adapter_of, check_adapters
from neuroncompile.errors import ConfigError
from neuroncompile.keys import compile_spec, spec_key

SMALL = Adapter("small", 8, ("q_proj", "v_proj"))
LARGE = Adapter("large", 32, ("q_proj", "o_proj"))


def test_an_adapter_config_is_read() -> None:
    config = {"peft_type": "LORA", "r": 16, "target_modules": ["v_proj", "q_proj"], "bias": "none"}
    assert adapter_of("a", config) == Adapter("a", 16, ("q_proj", "v_proj"), "none")
    assert adapter_of("a", {"lora_rank": 4, "target_modules": ["q_proj"]}).rank == 4


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"peft_type": "IA3"}, "peft_type"),
        ({"r": 0}, "r"),
        ({"r": "8"}, "r"),
        ({"r": None}, "r"),
        ({"target_modules": "all-linear"}, "target_modules"),
        ({"target_modules": []}, "target_modules"),
        ({"use_dora": True}, "use_dora"),
        ({"rank_pattern": {"q_proj": 4}}, "rank_pattern"),
        ({"modules_to_save": ["lm_head"]}, "modules_to_save"),
    ],
)
def test_what_cannot_be_served_is_refused(change: dict[str, Any], field: str) -> None:
    config = {"r": 8, "target_modules": ["q_proj"], **change}
    with pytest.raises(ConfigError) as caught:
        adapter_of("mine", config)
    assert caught.value.field == f"adapters.mine.{field}"
    assert "mine" in str(caught.value)


def test_what_was_left_open_is_filled_in() -> None:
    assert check_adapters({}, [SMALL, LARGE]) == {
        "max_lora_rank": 32,
        "max_loras": 2,
        "target_modules": ["o_proj", "q_proj", "v_proj"],
    }
    assert check_adapters({"max_loras": 4}, []) == {"max_loras": 4}


def test_more_than_needed_stays_as_asked() -> None:
    asked = {
        "max_lora_rank": 64,
        "max_loras": 8,
        "target_modules": ["q_proj", "k_proj", "v_proj", "o_proj"],
    }
    assert check_adapters(asked, [SMALL, LARGE]) == asked


@pytest.mark.parametrize(
    ("asked", "field", "legal"),
    [
        ({"max_lora_rank": 16}, "lora_config.max_lora_rank", ">= 32"),
        ({"max_loras": 1}, "lora_config.max_loras", ">= 2"),
        (
            {"target_modules": ["q_proj", "v_proj"]},
            "lora_config.target_modules",
            "a list with o_proj, q_proj, v_proj",
        ),
    ],
)
def test_an_adapter_that_does_not_fit_is_refused(
    asked: dict[str, Any], field: str, legal: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        check_adapters(asked, [SMALL, LARGE])
    assert caught.value.field == field
    assert caught.value.legal == legal
    assert caught.value.exit_code == 5
    assert "large" in str(caught.value) or field.endswith("max_loras")


def test_swapping_adapters_needs_no_room_for_all() -> None:
    asked = {"max_loras": 1, "dynamic_multi_lora": True}
    assert check_adapters(asked, [SMALL, LARGE])["max_loras"] == 1


def test_biases_are_not_dropped() -> None:
    with pytest.raises(ConfigError) as caught:
        check_adapters({}, [Adapter("b", 8, ("q_proj",), "all")])
    assert caught.value.field == "lora_config.lora_bias"
    check_adapters({"lora_bias": "all"}, [Adapter("b", 8, ("q_proj",), "all")])


def test_shape_is_in_the_key_and_weights_are_not() -> None:
    """Ranks, counts and modules change the program; which adapter fills it does not."""

    def key(**lora: Any) -> str:
        return spec_key(
            compile_spec(
                backend="nxdi",
                model={"model_type": "llama"},
                neuron={"lora_config": lora},
                compiler={"args": [], "env": {}},
                optlevel=None,
                target={"platform": "trn2", "lnc": 2},
                toolchain={},
            )
        )

    base = {"max_lora_rank": 16, "max_loras": 2, "target_modules": ["q_proj"]}
    assert key(**base, lora_ckpt_paths=["a:/one"]) == key(**base, lora_ckpt_paths=["b:/two"])
    for change in ({"max_lora_rank": 32}, {"max_loras": 3}, {"target_modules": ["v_proj"]}):
        assert key(**base) != key(**(base | change))
