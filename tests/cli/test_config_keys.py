from __future__ import annotations

import json

import pytest
import typer

from neuroncompile.cli.config_keys import register
from neuroncompile.cli.state import State
from neuroncompile.output import Output


@pytest.fixture
def group() -> typer.Typer:
    group = typer.Typer()
    group.callback()(lambda: None)
    register(group, "epilog")
    return group


def call(group: typer.Typer, *args: str, json_mode: bool = False) -> int:
    state = State(Output(json_mode=json_mode))
    code: int = group([*args], standalone_mode=False, obj=state)
    return code


def test_it_lists_and_describes(group: typer.Typer, capsys: pytest.CaptureFixture[str]) -> None:
    assert call(group, "keys", "seq_len") == 0
    assert "longest sequence" in capsys.readouterr().out
    assert call(group, "keys", "top_p", json_mode=True) == 0
    record = json.loads(capsys.readouterr().out)["result"]
    assert record["name"] == "on_device_sampling_config.top_p"
    assert call(group, "keys") == 0
    assert "KEYWORD" in capsys.readouterr().out
