"""One sink: one JSON document, nothing on the wrong stream, no colour when piped."""

from __future__ import annotations

import io
import json
import sys

import pytest

from neuroncompile.errors import ModelError
from neuroncompile.output import Output, human_bytes, human_seconds


def test_human_results_on_stdout_and_the_rest_on_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    out = Output()
    out.line("result")
    out.note("about it")
    out.note("detail", level=1)
    out.warn("careful")
    out.warn("careful")
    captured = capsys.readouterr()
    assert captured.out == "result\n"
    assert captured.err == "about it\nwarning: careful\n"


def test_json_is_exactly_one_document(capsys: pytest.CaptureFixture[str]) -> None:
    out = Output(json_mode=True, quiet=True)
    out.command = "build"
    out.line("not shown")
    out.warn("careful")
    out.result({"key": "ab"})
    out.result({"key": "twice"})
    captured = capsys.readouterr()
    assert json.loads(captured.out) == {
        "schema": 1,
        "command": "build",
        "exit_code": 0,
        "result": {"key": "ab"},
        "warnings": ["careful"],
        "error": None,
    }
    assert captured.err == ""


def test_json_error(capsys: pytest.CaptureFixture[str]) -> None:
    out = Output(json_mode=True)
    out.error(ModelError("gone", hint="look"))
    document = json.loads(capsys.readouterr().out)
    assert (document["exit_code"], document["result"]) == (4, None)
    assert document["error"]["hint"] == "look"


def test_table_columns(capsys: pytest.CaptureFixture[str]) -> None:
    Output().table(("A", "LONG"), [("aaaa", "b"), ("c", "d")])
    assert capsys.readouterr().out == "A     LONG\naaaa  b\nc     d\n"


def test_colour_only_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    assert Output().style("x", "1", Terminal()) == "\x1b[1mx\x1b[0m"
    assert Output().style("x", "1", io.StringIO()) == "x"
    monkeypatch.setenv("NO_COLOR", "1")
    assert Output().style("x", "1", Terminal()) == "x"


def test_a_stream_that_is_not_utf8(monkeypatch: pytest.MonkeyPatch) -> None:
    raw = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(raw, encoding="ascii"))
    Output().stream("naïve 🎉")
    assert raw.getvalue() == b"na?ve ?"


@pytest.mark.parametrize(
    ("size", "text"), [(0, "0 B"), (1536, "1.5 KB"), (4_000_000, "4.0 MB"), (2.5e12, "2.5 TB")]
)
def test_bytes(size: float, text: str) -> None:
    assert human_bytes(size) == text


@pytest.mark.parametrize(("s", "text"), [(0.42, "0.4 s"), (75, "1m15s"), (3700, "1h01m")])
def test_seconds(s: float, text: str) -> None:
    assert human_seconds(s) == text
