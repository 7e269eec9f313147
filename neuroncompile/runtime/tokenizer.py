"""Text to token ids and back, on the `tokenizers` library and the files beside a checkpoint."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from neuroncompile.errors import ModelError

__all__ = ["TextStream", "Tokenizer"]

BROKEN = "\ufffd"  # what incomplete UTF-8 decodes to


class Tokenizer:
    """A `tokenizer.json` with the names of its special tokens.

    Raises:
        ModelError: the directory has no readable tokenizer.json.
    """

    def __init__(self, directory: Path) -> None:
        from tokenizers import Tokenizer as Fast

        path = directory / "tokenizer.json"
        try:
            self._fast = Fast.from_file(str(path))
        except Exception as error:  # the library raises bare Exception
            reason = "there is none" if not path.exists() else str(error)
            raise ModelError(
                f"{path} cannot be read: {reason}",
                hint="the model needs a tokenizer.json; transformers' "
                "AutoTokenizer.from_pretrained(…).save_pretrained(…) writes one",
            ) from None
        self.config: Mapping[str, Any] = _json(directory / "tokenizer_config.json")
        self.special_tokens = _special_tokens(
            self.config, _json(directory / "special_tokens_map.json")
        )
        self.bos_token_id = self.token_id(self.special_tokens.get("bos_token"))

    def encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
        """Token ids of `text`.

        Args:
            add_special_tokens: let the tokenizer add its beginning of sequence. A rendered chat
                has it already; a raw prompt that begins with it does not get a second one.
        """
        ids: list[int] = self._fast.encode(text, add_special_tokens=add_special_tokens).ids
        bos = self.bos_token_id
        if add_special_tokens and bos is not None and ids[:2] == [bos, bos]:
            return ids[1:]
        return ids

    def decode(self, ids: Sequence[int]) -> str:
        """Text of token ids, special tokens left out."""
        text: str = self._fast.decode(list(ids), skip_special_tokens=True)
        return text

    def token_id(self, token: str | None) -> int | None:
        """Id of one token's text, or None."""
        found: int | None = self._fast.token_to_id(token) if token else None
        return found


class TextStream:
    """Text of a growing sequence of tokens, in pieces that are never taken back.

    Only a short window is decoded each time: from the last place where the text was whole.
    Decoding the window with and without the new tokens and showing the difference keeps
    spaces right for decoders that strip a leading one.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._ids: list[int] = []
        self._prefix = 0  # the window begins here
        self._shown = 0  # tokens up to here have been shown

    def push(self, token: int) -> str:
        """The text this token completes; empty while a character is incomplete."""
        self._ids.append(token)
        return self._advance(final=False)

    def flush(self) -> str:
        """What is left at the end; an incomplete character is dropped."""
        return self._advance(final=True)

    def _advance(self, *, final: bool) -> str:
        known = self._tokenizer.decode(self._ids[self._prefix : self._shown])
        text = self._tokenizer.decode(self._ids[self._prefix :])
        if text.endswith(BROKEN):
            if not final:
                return ""
            text = text.rstrip(BROKEN)
        if len(text) <= len(known):
            return ""
        self._prefix, self._shown = self._shown, len(self._ids)
        return text[len(known) :]


def _special_tokens(*configs: Mapping[str, Any]) -> dict[str, str]:
    """bos_token, eos_token, pad_token, unk_token as plain text, from the first file that says."""
    found: dict[str, str] = {}
    for config in configs:
        for name in ("bos_token", "eos_token", "pad_token", "unk_token"):
            value = config.get(name)
            text = value.get("content") if isinstance(value, Mapping) else value
            if isinstance(text, str):
                found.setdefault(name, text)
    return found


def _json(path: Path) -> Mapping[str, Any]:
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return value if isinstance(value, dict) else {}
