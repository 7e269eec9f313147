"""Prompts from JSON Lines."""

from __future__ import annotations

from pathlib import Path

import pytest

from neuroncompile.errors import ConfigError, UsageError
from neuroncompile.pipeline.prompts import Ask, read_asks


def write(tmp_path: Path, text: str) -> str:
    path = tmp_path / "asks.jsonl"
    path.write_text(text)
    return str(path)


def test_forms(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        '{"prompt": "a", "temperature": 0.5, "stop": "x"}\n\n'
        '"plain"\n'
        '{"messages": [{"role": "user", "content": "b"}], "seed": 0}\n',
    )
    assert read_asks(path) == [
        Ask("a", (), {"temperature": 0.5, "stop": ("x",)}, 1),
        Ask("plain", (), {}, 3),
        Ask(None, ({"role": "user", "content": "b"},), {"seed": 0}, 4),
    ]


def test_a_line_separator_inside_a_string_is_not_a_new_line(tmp_path: Path) -> None:
    assert read_asks(write(tmp_path, '{"prompt": "a\u2028b"}\n')) == [Ask("a\u2028b", line=1)]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"prompt": "a"}\n{"promt": "b"}', "line 2: neither a prompt nor messages"),
        ('{"prompt": "a", "temprature": 1}', "unknown key 'temprature'"),
        ("{prompt: 1}", "line 1: not JSON"),
        ('{"prompt": 3}', "wrong type"),
        ('{"messages": [{"content": "x"}]}', "wrong type"),
        ('{"prompt": "a", "messages": []}', "neither a prompt nor messages"),
        ("[1]", "neither a prompt nor messages"),
    ],
)
def test_bad_lines_are_named(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        read_asks(write(tmp_path, text))


def test_nothing_to_read(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="holds no prompts"):
        read_asks(write(tmp_path, "\n\n"))
    with pytest.raises(UsageError, match="No such file"):
        read_asks(str(tmp_path / "none"))
