"""Text to token ids and back, on the `tokenizers` library and the files beside a checkpoint."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from neuroncompile.errors import ConfigError, ModelError

__all__ = ["TextStream", "Tokenizer"]

BROKEN = "\ufffd"  # what incomplete UTF-8 decodes to
SPECIAL_TOKENS = (
    "bos_token",
    "eos_token",
    "unk_token",
    "sep_token",
    "pad_token",
    "cls_token",
    "mask_token",
)


class Tokenizer:
    """A `tokenizer.json` with the names of its special tokens.

    Attributes:
        config: tokenizer_config.json; {} if there is none.
        special_tokens: bos_token, eos_token, … → text, of those the checkpoint names.
        special_ids: ids that are never text.
        bos_token_id: id of bos_token, or None.

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
        # Baked-in truncation and padding are for training; prompts are padded by the engine.
        self._fast.no_truncation()
        self._fast.no_padding()
        self.config: Mapping[str, Any] = _json(directory / "tokenizer_config.json")
        self.special_tokens = _special_tokens(
            self.config, _json(directory / "special_tokens_map.json")
        )
        self.bos_token_id = self.token_id(self.special_tokens.get("bos_token"))
        added = self._fast.get_added_tokens_decoder()
        self.special_ids = frozenset(i for i, token in added.items() if token.special)

    def encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
        """Token ids of `text`.

        Args:
            add_special_tokens: let tokenizer.json's post-processor add its beginning of sequence,
                as transformers does. A rendered chat has one already; a raw prompt that begins
                with it does not get a second one.

        Raises:
            ConfigError: the text is not Unicode (a lone surrogate, from bytes that are not UTF-8).
        """
        ids = self._encode(text, add_special_tokens)
        bos = self.bos_token_id
        if add_special_tokens and bos is not None and ids[:2] == [bos, bos]:
            typed = self._encode(text, False)
            return ids if ids == typed else ids[1:]
        return ids

    def _encode(self, text: str, add_special_tokens: bool) -> list[int]:
        try:
            ids: list[int] = self._fast.encode(text, add_special_tokens=add_special_tokens).ids
        except (UnicodeEncodeError, TypeError):
            raise ConfigError(
                "the prompt is not valid UTF-8",
                field="prompt",
                value=text[:80].encode("utf-8", "backslashreplace").decode(),
                legal="Unicode text",
                hint="convert it to UTF-8",
            ) from None
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

    Only a window of tokens is decoded each time: those since the text was last whole, and before
    them, as context, those of the time before. What the window's text gained is shown, so a
    decoder that strips a leading space does it at the very beginning only. The pieces join to
    the whole text, apart from bytes that never become a character.
    """

    PATIENCE = 16  # a character has at most four bytes, so four tokens; more are no character

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._window: list[int] = []
        self._context = 0  # the window's first tokens, all shown
        self._shown = ""  # the part of the window's text that was shown

    def push(self, token: int) -> str:
        """The text this token completes; empty while a character is incomplete."""
        if token in self._tokenizer.special_ids:
            return ""
        self._window.append(token)
        text = self._tokenizer.decode(self._window)
        piece = self._gain(text)
        if text.endswith(BROKEN):
            return piece + self._give_up(text)
        if piece:
            self._window = self._window[self._context :]
            self._context = len(self._window)
            self._shown = self._tokenizer.decode(self._window)
        return piece

    def flush(self) -> str:
        """What is left at the end; an incomplete character is dropped."""
        return self._gain(self._tokenizer.decode(self._window))

    def _gain(self, text: str) -> str:
        """What `text` has beyond what was shown, without the characters that may yet change."""
        if not text.startswith(self._shown):
            # Byte-fallback decoders break a whole run of bytes for one wrong byte, also the
            # characters before it; these were shown and stay.
            text = self._shown + self._tokenizer.decode(self._window[self._context :])
        piece = text.rstrip(BROKEN)[len(self._shown) :]
        self._shown += piece
        return piece

    def _give_up(self, text: str) -> str:
        """Show bytes that have long not become a character, and forget them.

        Without it a model that emits rubbish would be decoded from its beginning at every token.
        """
        size = len(self._window)
        if size - self._context <= self.PATIENCE:
            return ""
        for cut in range(size - 1, size - self.PATIENCE // 2, -1):
            head = self._tokenizer.decode(self._window[:cut])
            whole = head + self._tokenizer.decode(self._window[cut:]) == text  # not in a character
            if whole and head.startswith(self._shown):
                piece = head[len(self._shown) :]
                self._window, self._context, self._shown = self._window[cut:], 0, ""
                return piece
        return ""


def _special_tokens(*configs: Mapping[str, Any]) -> dict[str, str]:
    """SPECIAL_TOKENS as plain text, from the first file that says."""
    found: dict[str, str] = {}
    for config in configs:
        for name in SPECIAL_TOKENS:
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
