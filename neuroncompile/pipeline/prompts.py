"""What is asked of a model: from the command line, stdin or a JSON Lines file."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from neuroncompile.errors import ConfigError, UsageError, nearest

__all__ = ["SAMPLING_KEYS", "Ask", "read_asks"]

SAMPLING_KEYS = ("temperature", "top_k", "top_p", "seed", "max_new_tokens", "stop")
_KEYS = ("prompt", "messages", *SAMPLING_KEYS)


@dataclass(frozen=True, slots=True)
class Ask:
    """One prompt or chat, with sampling of its own.

    Attributes:
        prompt: raw text, or None for a chat.
        messages: `{"role", "content"}` mappings; empty for raw text.
        sampling: SAMPLING_KEYS that this ask sets itself.
        line: 1-based line of its file, for errors.
    """

    prompt: str | None = None
    messages: tuple[Mapping[str, Any], ...] = ()
    sampling: Mapping[str, Any] = field(default_factory=dict)
    line: int | None = None


def read_asks(name: str) -> list[Ask]:
    """Read a JSON Lines file; `-` is stdin.

    Raises:
        UsageError: the file cannot be read or holds nothing.
        ConfigError: a line is not an ask; the message names file and line.
    """
    try:
        text = sys.stdin.read() if name == "-" else Path(name).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise UsageError(
            f"--prompts {name} cannot be read: {reason}",
            hint="give a JSON Lines file, or - for stdin",
        ) from None
    asks = list(_lines(text, "stdin" if name == "-" else name))
    if not asks:
        raise UsageError(
            f"--prompts {name} holds no prompts", hint='one {"prompt": "…"} object a line'
        )
    return asks


def _lines(text: str, name: str) -> Iterator[Ask]:
    for number, line in enumerate(text.split("\n"), start=1):
        if line.strip():
            yield _ask(line, f"{name}, line {number}", number)


def _ask(line: str, where: str, number: int) -> Ask:
    form = '{"prompt": "…"} or {"messages": [{"role": "user", "content": "…"}]}'
    try:
        row = json.loads(line)
    except json.JSONDecodeError as error:
        raise ConfigError(f"{where}: not JSON ({error.msg})", hint=f"write {form}") from None
    if isinstance(row, str):
        row = {"prompt": row}
    if not isinstance(row, dict) or ("prompt" in row) == ("messages" in row):
        raise ConfigError(f"{where}: neither a prompt nor messages", hint=f"write {form}")
    for key in row:
        if key not in _KEYS:
            near = nearest(key, _KEYS)
            raise ConfigError(
                f"{where}: unknown key {key!r}",
                field=key,
                value=row[key],
                legal=list(_KEYS),
                hint=f"did you mean {near!r}?" if near else f"legal keys: {', '.join(_KEYS)}",
            )
    messages = row.get("messages", [])
    if not isinstance(row.get("prompt", ""), str) or not _are_messages(messages):
        raise ConfigError(f"{where}: wrong type", hint=f"write {form}")
    sampling = {key: row[key] for key in SAMPLING_KEYS if row.get(key) is not None}
    if isinstance(sampling.get("stop"), str):
        sampling["stop"] = (sampling["stop"],)
    return Ask(row.get("prompt"), tuple(messages), sampling, number)


def _are_messages(messages: Any) -> bool:
    return isinstance(messages, list) and all(
        isinstance(m, dict) and isinstance(m.get("role"), str) and "content" in m for m in messages
    )
