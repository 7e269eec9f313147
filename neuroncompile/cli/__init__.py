"""The command line: one file a command, each with its signature, its help and one lazy import.

Only the module of the command that was asked for is imported, so the others cost nothing.
Options that every command takes (`--json`, `-v`, `-q`, `--store`, `--offline`) may stand
anywhere; underscores in option names are read as dashes.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Sequence
from importlib import import_module
from types import FrameType
from typing import Any

import typer

from neuroncompile import __version__
from neuroncompile.cli.state import State
from neuroncompile.errors import InterruptedBuildError, NeuronCompileError, UsageError, nearest
from neuroncompile.output import Output

__all__ = ["COMMANDS", "application", "main"]

COMMANDS = {
    "build": "compile a model, or find it compiled",
    "run": "decode text, building first if needed",
    "prewarm": "build all programs that recipes name",
    "export": "write a Neuron program as NxD Inference and vLLM load it",
    "env": "print the variables and options that serve a Neuron program",
    "config": "show, compare and explain configs and their keywords",
    "plan": "say what a program needs, and whether it fits",
    "explain": "why two keys differ, or what a key is made of",
    "store": "look into the artifact store",
    "recipes": "list, show and check recipes",
    "doctor": "say what is wrong with this machine, and what mends it",
    "lock": "write down what recipes mean today, for build --locked",
    "toolchain": "list, show and freeze compiler toolchains",
    "models": "list model families",
    "targets": "list and show compile targets",
}

_FLAGS = {"--json", "-q", "--quiet", "-v", "-vv", "--verbose", "--offline"}
_VALUED = {"--store"}

EPILOG = (
    "Everywhere: --json (one document on stdout), -v, -q, --store DIR, --offline. "
    "NO_COLOR turns colour off; --install-completion sets up the shell."
)


def application(only: str | None = None) -> typer.Typer:
    """The typer application, with one command or (by default) all of them."""
    app = typer.Typer(
        name="neuroncompile",
        help="Compile a language model for AWS Neuron once, prove what it is, run it anywhere.",
        epilog=EPILOG,
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
        context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    )
    app.callback()(_everywhere)
    for name, summary in COMMANDS.items():
        if only is None or only == name:
            module = import_module(f"neuroncompile.cli.{name}")
            module.register(app, name, summary, EPILOG)
    return app


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    _signals()
    args = list(sys.argv[1:] if argv is None else argv)
    output = Output(json_mode="--json" in _before_separator(args))
    state = State(output)
    try:
        args = arrange(args)
        state.command = _command_name(args)
        if "--version" in _before_separator(args):
            output.line(f"neuroncompile {__version__}")
            output.result({"version": __version__})
            return 0
        code = application(_registered(state.command))(
            args, prog_name="neuroncompile", standalone_mode=False, obj=state
        )
        return code if isinstance(code, int) else 0
    except NeuronCompileError as error:
        output.error(error)
        return error.exit_code
    except typer.Exit as leave:
        return leave.exit_code
    except typer.TyperException as error:
        if type(error).__name__ == "NoArgsIsHelpError" and not output.json_mode:
            output.line(str(error))
            return UsageError.exit_code
        usage = _usage_error(error, args)
        output.error(usage)
        return usage.exit_code
    except (KeyboardInterrupt, typer.Abort):
        interrupted = InterruptedBuildError(
            "interrupted; nothing half-made is left",
            hint="the same command goes on from what is kept",
        )
        output.error(interrupted)
        return interrupted.exit_code
    except Exception as error:
        from neuroncompile.pipeline.bug import report

        bug = report(error, state.command)
        output.error(bug)
        return bug.exit_code


def arrange(args: list[str]) -> list[str]:
    """Options of every command first, and `--seq_len` spelt `--seq-len`.

    Everything after a bare `--` is left as it is.
    """
    front: list[str] = []
    rest: list[str] = []
    words = iter(args)
    for word in words:
        if word == "--":
            return [*front, *rest, word, *words]
        name, equals, value = word.partition("=")
        if name.startswith("--"):
            name = name.replace("_", "-")
        if name in _FLAGS and not equals:
            front.append(name)
        elif name in _VALUED:
            value = value if equals else next(words, "")
            if not value or value.startswith("-"):
                raise UsageError(f"{name} needs a directory", hint=f"write {name} DIR")
            front.extend([name, value])
        else:
            rest.append(name + equals + value if name.startswith("--") else word)
    return front + rest


def _everywhere(
    ctx: typer.Context,
    json_: bool = typer.Option(False, "--json", help="One JSON document on stdout."),
    verbose: int = typer.Option(
        0, "-v", "--verbose", count=True, show_default=False, help="Say more; -vv for everything."
    ),
    quiet: bool = typer.Option(False, "-q", "--quiet", help="Only results and errors."),
    store: str = typer.Option("", metavar="DIR", help="The store [env: NEURONCOMPILE_STORE]."),
    offline: bool = typer.Option(False, "--offline", help="No network at all."),
    version: bool = typer.Option(False, "--version", help="Show the version and leave."),
) -> None:
    """See the epilog: these options may stand before or after the command."""
    state: State = ctx.obj
    state.output.quiet, state.output.verbosity = quiet, verbose
    state.output.json_mode = json_
    state.store, state.offline = store or None, offline


def _usage_error(error: typer.TyperException, args: Sequence[str]) -> UsageError:
    message = error.format_message() if hasattr(error, "format_message") else str(error)
    if message.startswith("Usage:"):
        message = "a command is missing"
    name = _command_name(args)
    if name and name.split()[0] not in COMMANDS:
        near = nearest(name, COMMANDS)
        hint = f"did you mean 'neuroncompile {near}'?" if near else "neuroncompile --help lists all"
        return UsageError(f"no command {name!r}", hint=hint)
    if message.startswith("No such command"):  # of a group: the group's help lists those it has
        name = name.partition(" ")[0]
    return UsageError(message.rstrip("."), hint=f"neuroncompile {name} --help".replace("  ", " "))


def _command_name(args: Sequence[str]) -> str:
    """'build', or 'store ls' for a command of a group; '' when there is none."""
    words = []
    skip = False
    for word in args:
        if skip:
            skip = False
        elif word in _VALUED:
            skip = True
        elif not word.startswith("-"):
            words.append(word)
        elif words:
            break
    if not words:
        return ""
    groups = {"config", "store", "recipes", "toolchain", "targets", "models"}
    grouped = words[0] in groups and len(words) > 1
    return " ".join(words[:2]) if grouped else words[0]


def _registered(command: str) -> str | None:
    first = command.split()[0] if command else ""
    return first if first in COMMANDS else None


def _before_separator(args: Sequence[str]) -> Sequence[str]:
    return args[: args.index("--")] if "--" in args else args


def _signals() -> None:
    def stop(number: int, frame: FrameType | None) -> Any:
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, stop)  # a pod that is told to go keeps its finished graphs too
