"""`run` on a terminal without a prompt: one line in, one answer out, until Ctrl-D."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from neuroncompile.errors import NeuronCompileError
from neuroncompile.output import Output
from neuroncompile.pipeline.prompts import Ask
from neuroncompile.pipeline.session import Session

__all__ = ["converse"]


def converse(
    session: Session,
    command_line: Mapping[str, Any],
    output: Output,
    *,
    chat: bool,
    system: str | None,
) -> int:
    """Read lines until end of input; a chat remembers what was said.

    Ctrl-C ends an answer, not the session. An error (a chat grown too long) is shown and the
    line that caused it forgotten.
    """
    import readline  # noqa: F401  line editing and history for input()

    opening = [{"role": "system", "content": system}] if system else []
    history: list[Mapping[str, Any]] = list(opening)
    kind = "chat; /reset forgets it" if chat else "raw prompts, each on its own"
    output.note(f"{kind}; Ctrl-D ends")
    while True:
        try:
            line = input("> ")
        except EOFError:
            output.line()
            return 0
        except KeyboardInterrupt:
            output.line()
            continue
        if not line.strip():
            continue
        if chat and line.strip() == "/reset":
            history = list(opening)
            continue
        said = [*history, {"role": "user", "content": line}]
        ask = Ask(messages=tuple(said)) if chat else Ask(prompt=line)
        try:
            answer = _answer(session, ask, command_line, output, chat=chat)
        except NeuronCompileError as error:
            output.error(error)
            continue
        history = [*said, {"role": "assistant", "content": answer}]


def _answer(
    session: Session, ask: Ask, command_line: Mapping[str, Any], output: Output, *, chat: bool
) -> str:
    requests, _ = session.prepare([ask], command_line, chat=chat)
    pieces = []
    try:
        for event in session.stream(requests):
            output.stream(event.text)
            pieces.append(event.text)
    except KeyboardInterrupt:
        pass
    output.line()
    return "".join(pieces)
