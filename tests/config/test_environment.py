"""Each variable of the table does what its row says, and no other gets by."""

from __future__ import annotations

import pytest

from neuroncompile.config.environment import VARIABLES, read_environment
from neuroncompile.errors import ConfigError
from neuroncompile.hardware.targets import parse_target

TRN2 = parse_target("trn2")


def of(action: str) -> list[str]:
    """Names of the table; a beginning stands for one name that begins so."""
    names = [name for name, row in VARIABLES.items() if row[0].startswith(action)]
    return [name + "ANYTHING" if name.endswith("_") else name for name in names]


@pytest.mark.parametrize("name", of("program"))
def test_what_changes_a_program_reaches_its_compiler(name: str) -> None:
    assert read_environment({name: " 1 "}, TRN2) == ((), {name: "1"})


@pytest.mark.parametrize("name", of("ignored"))
def test_what_changes_no_program_reaches_nothing(name: str) -> None:
    assert read_environment({name: "1"}, TRN2) == ((), {})


@pytest.mark.parametrize("name", of("refused"))
def test_what_no_key_could_tell_is_refused_with_its_reason(name: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read_environment({name: "1"}, TRN2)
    assert caught.value.field == name
    assert VARIABLES[name][1] in str(caught.value)
    assert caught.value.hint == f"unset {name}"


def test_keywords_are_set_and_the_newer_name_comes_last() -> None:
    environ = {"NEURON_LOGICAL_NC_CONFIG": "1", "NEURON_RT_VIRTUAL_CORE_SIZE": "2"}
    assert read_environment(environ, TRN2).config == (
        ("logical_nc_config", 2, "environment NEURON_RT_VIRTUAL_CORE_SIZE"),
        ("logical_nc_config", 1, "environment NEURON_LOGICAL_NC_CONFIG"),
    )
    [row] = read_environment({"DISABLE_NUMERIC_CC_TOKEN": "1"}, TRN2).config
    assert row[:2] == ("disable_numeric_cc_token", True)


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("NEURON_LOGICL_NC_CONFIG", "NEURON_LOGICAL_NC_CONFIG"),
        ("NEURON_FUSE_SOFTMX", "NEURON_FUSE_SOFTMAX"),
        ("NXD_SOMETHING_NEW", None),
        ("XLA_SOMETHING_NEW", None),
        ("UNSAFE_SOMETHING_NEW", None),
    ],
)
def test_a_variable_that_nobody_knows_is_refused_by_name(name: str, near: str | None) -> None:
    with pytest.raises(ConfigError, match=name) as caught:
        read_environment({name: "hf_secret"}, TRN2)
    assert "hf_secret" not in str(caught.value), "what it holds is nobody's business"
    assert (near or "unset") in str(caught.value.hint)


def test_variables_of_others_and_empty_ones_are_let_alone() -> None:
    others = {"PATH": "/bin", "NEURONCOMPILE_STORE": "/x", "VLLM_X": "1", "NXD_FOO": "  "}
    assert read_environment(others, TRN2) == ((), {})


@pytest.mark.parametrize(("target", "text"), [("trn2", "trn2"), ("trn2", "gen3"), ("inf2", "gen2")])
def test_the_same_target_may_be_named_twice(target: str, text: str) -> None:
    environ = {"NEURON_PLATFORM_TARGET_OVERRIDE": text}
    assert read_environment(environ, parse_target(target)) == ((), {})


def test_another_target_is_refused_with_both() -> None:
    with pytest.raises(ConfigError, match=r"'trn1'.*trn2") as caught:
        read_environment({"NEURON_PLATFORM_TARGET_OVERRIDE": "trn1"}, TRN2)
    assert "--target trn1" in str(caught.value.hint)
