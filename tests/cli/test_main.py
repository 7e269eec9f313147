"""What the command line accepts, refuses and explains."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
import typer

import neuroncompile
from neuroncompile import __version__
from neuroncompile.cli import COMMANDS, application, arrange, main


def all_commands() -> list[list[str]]:
    return [
        ["build"],
        ["run"],
        ["prewarm"],
        ["explain"],
        ["config", "show"],
        ["config", "diff"],
        ["store", "ls"],
        ["store", "show"],
        ["store", "export"],
        ["store", "import"],
        ["store", "path"],
        ["recipes", "ls"],
        ["recipes", "show"],
        ["toolchain", "show"],
        ["toolchain", "freeze"],
        ["targets", "ls"],
        ["config", "keys"],
        ["models", "ls"],
        ["targets", "show"],
        ["plan"],
    ]


@pytest.mark.parametrize("command", all_commands(), ids=" ".join)
def test_every_command_has_help_with_an_example(
    command: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*command, "--help"]) == 0
    text = capsys.readouterr().out
    assert "Example" in text
    assert f"neuroncompile {' '.join(command)}" in text


def test_top_help_lists_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    text = capsys.readouterr().out
    for name in COMMANDS:
        assert f"\n  {name} " in text


def test_a_group_alone_shows_its_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["store"]) == 2
    captured = capsys.readouterr()
    assert captured.out.startswith("Usage: neuroncompile store")
    assert captured.err == ""
    assert main(["store", "--json"]) == 2
    assert json.loads(capsys.readouterr().out)["error"]["message"] == "a command is missing"


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"neuroncompile {__version__}\n"


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["buld"], "did you mean 'neuroncompile build'?"),
        (["build"], "Missing argument 'MODEL'"),
        (["build", "m", "--seqlen", "3"], "No such option"),
        (["build", "m", "--batch-size", "four"], "is not a valid int"),
        (["store", "lst"], "No such command 'lst'"),
        (["build", "m", "n"], "unexpected extra argument"),
        (["build", "m", "--store"], "--store needs a directory"),
        (["build", "m", "--store="], "--store needs a directory"),
    ],
    ids=lambda v: " ".join(v) if isinstance(v, list) else "",
)
def test_what_the_parser_refuses_is_exit_2(
    argv: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(argv) == 2
    captured = capsys.readouterr()
    assert message in captured.err
    assert captured.out == ""
    assert main([*argv, "--json"]) == 2
    document = json.loads(capsys.readouterr().out)
    assert document["exit_code"] == 2
    assert document["error"]["type"] == "UsageError"


@pytest.mark.parametrize(
    ("given", "arranged"),
    [
        (["build", "m", "--json"], ["--json", "build", "m"]),
        (["build", "m", "--store", "d", "-q"], ["--store", "d", "-q", "build", "m"]),
        (["build", "m", "--store=d"], ["--store", "d", "build", "m"]),
        (["build", "m", "--seq_len", "9"], ["build", "m", "--seq-len", "9"]),
        (["build", "m", "--seq_len=9"], ["build", "m", "--seq-len=9"]),
        (["run", "m", "--", "--json"], ["run", "m", "--", "--json"]),
        (["build", "m", "--set", "a_b=c_d"], ["build", "m", "--set", "a_b=c_d"]),
    ],
)
def test_arrange(given: list[str], arranged: list[str]) -> None:
    assert arrange(given) == arranged


def test_help_is_light() -> None:
    heavy = ["torch", "transformers", "numpy", "pydantic", "rich", "asyncio", "urllib3"]
    code = (
        "import sys; from neuroncompile.cli import main; main(['build', '--help']); "
        f"print([m for m in {heavy} if m in sys.modules], file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr.strip() == "[]"


def test_hints_name_commands_that_exist() -> None:
    found = []
    for path in Path(neuroncompile.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.keyword) and node.arg == "hint":
                text = ast.unparse(node.value)
                found += [
                    (path.name, m)
                    for m in re.findall(r"neuroncompile ([a-z]+)(?: ([a-z]+))?", text)
                ]
    assert len(found) > 5
    groups = {
        name: set(group.commands)
        for name, group in typer.main.get_command(application()).commands.items()
        if hasattr(group, "commands")
    }
    assert "export" in groups["store"]
    for name, (command, sub) in found:
        assert command in COMMANDS, (name, command)
        assert command not in groups or sub in groups[command], (name, command, sub)
