from __future__ import annotations

import json

import pytest

from neuroncompile.errors import ConfigError
from neuroncompile.output import Output
from neuroncompile.pipeline.config_keys import config_keys_command


def test_all_of_them_as_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    assert config_keys_command(None, Output()) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["KEYWORD", "TYPE", "DEFAULT", "REACHES", "MEANING"]
    row = next(line for line in lines if line.startswith("seq_len "))
    assert row.split()[:4] == ["seq_len", "int", "128", "graph"]
    assert "longest sequence" in row
    assert len(lines) > 230


def test_one_in_full(capsys: pytest.CaptureFixture[str]) -> None:
    assert config_keys_command("padding_side", Output()) == 0
    shown = capsys.readouterr().out
    assert "legal     right, left" in shown
    assert "since     NxD Inference 0.1 (SDK 2.21)" in shown
    assert "models    all" in shown


def test_json(capsys: pytest.CaptureFixture[str]) -> None:
    output = Output(json_mode=True)
    config_keys_command("quantize_clamp_bound", output)
    document = json.loads(capsys.readouterr().out)["result"]
    assert document["name"] == "quantize_clamp_bound"
    assert document["default"] == "Infinity"
    assert document["reaches"] == "graph"


def test_a_misspelt_one_is_refused() -> None:
    with pytest.raises(ConfigError) as caught:
        config_keys_command("batchsize", Output())
    assert caught.value.exit_code == 5
    assert caught.value.hint == "did you mean batch_size?"
