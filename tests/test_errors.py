"""The error tree, its exit codes and the hints built on it."""

from __future__ import annotations

import inspect
import re

import pytest

from neuroncompile import errors

CODES = {
    "NeuronCompileError": 1,
    "UsageError": 2,
    "CacheMissError": 3,
    "ModelError": 4,
    "ModelNotFoundError": 4,
    "GatedModelError": 4,
    "NetworkError": 4,
    "NotCachedError": 4,
    "ConfigError": 5,
    "ToolchainError": 5,
    "CompileError": 6,
    "StoreError": 7,
    "CorruptArtifactError": 7,
    "TierError": 8,
    "TrustError": 9,
    "RunError": 10,
    "PromptTooLongError": 10,
    "RetryError": 75,
    "InterruptedBuildError": 130,
}


def test_exit_codes() -> None:
    found = {
        name: cls.exit_code
        for name, cls in vars(errors).items()
        if inspect.isclass(cls) and issubclass(cls, errors.NeuronCompileError)
    }
    assert found == CODES


def test_the_docstring_draws_every_class() -> None:
    drawn = set(re.findall(r"\b[A-Z]\w+Error\b", errors.__doc__ or ""))
    assert drawn == set(CODES)


def test_exported_names() -> None:
    assert sorted(errors.__all__) == errors.__all__
    assert set(errors.__all__) == {*CODES, "nearest"}


def test_config_error_keeps_field_value_and_legal_values() -> None:
    error = errors.ConfigError(
        "batch_size is 0", field="batch_size", value=0, legal=">= 1", hint="--batch-size 1"
    )
    assert error.as_json() == {
        "type": "ConfigError",
        "message": "batch_size is 0",
        "hint": "--batch-size 1",
        "details": {"field": "batch_size", "value": 0, "legal": ">= 1"},
    }


@pytest.mark.parametrize(
    ("typo", "meant"),
    [("seqlen", "seq_len"), ("batchsize", "batch_size"), ("SEQ-LEN", "seq_len"), ("zzz", None)],
)
def test_nearest(typo: str, meant: str | None) -> None:
    assert errors.nearest(typo, ["seq_len", "batch_size", "tp_degree"]) == meant
