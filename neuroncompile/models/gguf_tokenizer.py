"""tokenizer.json and tokenizer_config.json from a GGUF header.

A GGUF file names its pre-tokenizer ("smollm", "llama-bpe") instead of holding it; the rules are
llama.cpp's (src/llama-vocab.cpp), spelt with the `tokenizers` library's parts.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from neuroncompile.errors import ModelError, ToolchainError
from neuroncompile.models.gguf_header import GGUFHeader

__all__ = ["PRE_TOKENIZERS", "tokenizer_config_of", "tokenizer_json_of"]

_CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_WORDS = rf"{_CONTRACTIONS}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|%s| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*"
_SPACES = r"|\s*[\r\n]+|\s+(?!\S)|\s+"
_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)"

PRE_TOKENIZERS: dict[str, tuple[str, ...]] = {
    "smollm": (r"\p{N}", _GPT2),
    "gpt-2": (_GPT2,),
    "llama-bpe": (_WORDS % r"\p{N}{1,3}" + _SPACES,),
    "qwen2": (_WORDS % r"\p{N}" + _SPACES,),
    "default": (r"[\p{P}\$\+<=>\^~\|]+", _GPT2, r"\p{N}+", r"[0-9][0-9][0-9]"),
}
"""`tokenizer.ggml.pre` → expressions; each cuts the pieces of the one before it further."""

_CONTROL, _USER_DEFINED = 3, 4
_IDS = {"bos": "bos", "eos": "eos", "unknown": "unk", "padding": "pad"}


def tokenizer_json_of(header: GGUFHeader, path: Path) -> str:
    """The text of tokenizer.json.

    Raises:
        ModelError: a tokenizer that is not read, or an inconsistent one.
        ToolchainError: the `tokenizers` library is not installed.
    """
    try:
        from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers
        from tokenizers import pre_tokenizers as pre
    except ImportError:
        raise ToolchainError(
            "reading a GGUF tokenizer needs the tokenizers library",
            hint="pip install 'neuroncompile[cpu]'",
        ) from None
    fields = header.fields
    name = _pre_tokenizer(fields, path)
    tokens = fields.get("tokenizer.ggml.tokens")
    merges = fields.get("tokenizer.ggml.merges")
    kinds = fields.get("tokenizer.ggml.token_type") or [1] * len(tokens or ())
    if not tokens or not isinstance(merges, list) or len(kinds) != len(tokens):
        raise _bad(path, "has no complete vocabulary", "convert the model again")
    vocabulary = {token: number for number, token in enumerate(tokens)}
    if len(vocabulary) != len(tokens):
        raise _bad(path, "has a token twice", "convert the model again")
    pairs = [tuple(merge.split(" ", 1)) for merge in merges]
    known = [pair for pair in pairs if len(pair) == 2 and "".join(pair) in vocabulary]
    try:
        tokenizer = Tokenizer(
            models.BPE(vocab=vocabulary, merges=known, ignore_merges=name == "llama-bpe")
        )
    except Exception as error:  # the library raises bare exceptions
        raise _bad(path, f"has a malformed vocabulary: {error}", "convert it again") from None
    if name == "qwen2":
        tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre.Sequence(
        [
            *(pre.Split(Regex(e), behavior="isolated") for e in PRE_TOKENIZERS[name]),
            pre.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(
        [
            AddedToken(t, normalized=False)
            for t, k in zip(tokens, kinds, strict=True)
            if k == _CONTROL
        ]
    )
    tokenizer.add_tokens(
        [
            AddedToken(t, normalized=False)
            for t, k in zip(tokens, kinds, strict=True)
            if k == _USER_DEFINED
        ]
    )
    _surround(tokenizer, fields, name)
    return str(tokenizer.to_str())


def tokenizer_config_of(header: GGUFHeader) -> dict[str, Any]:
    """tokenizer_config.json: special tokens by their text, and the chat template."""
    fields = header.fields
    tokens = fields.get("tokenizer.ggml.tokens") or []
    config: dict[str, Any] = {"tokenizer_class": "PreTrainedTokenizerFast"}
    for theirs, ours in _IDS.items():
        number = fields.get(f"tokenizer.ggml.{theirs}_token_id")
        if isinstance(number, int) and 0 <= number < len(tokens):
            config[f"{ours}_token"] = tokens[number]
    if isinstance(fields.get("tokenizer.chat_template"), str):
        config["chat_template"] = fields["tokenizer.chat_template"]
    config["clean_up_tokenization_spaces"] = False
    return config


def _pre_tokenizer(fields: dict[str, Any], path: Path) -> str:
    model = fields.get("tokenizer.ggml.model")
    if model != "gpt2":
        raise _bad(
            path,
            f"has a tokenizer of kind {model!r}, which is not read",
            "take the model in safetensors with its tokenizer.json",
        )
    name = fields.get("tokenizer.ggml.pre", "default")
    if name not in PRE_TOKENIZERS:
        raise _bad(
            path,
            f"has the pre-tokenizer {name!r}, which is not read",
            f"read are: {', '.join(PRE_TOKENIZERS)}; or take the model in safetensors",
        )
    return str(name)


def _surround(tokenizer: Any, fields: dict[str, Any], name: str) -> None:
    """Begin and end tokens that the model was trained with."""
    from tokenizers import processors

    tokens = fields["tokenizer.ggml.tokens"]
    template, specials = ["$A"], []
    for place, default in (("bos", name == "llama-bpe"), ("eos", False)):
        number = fields.get(f"tokenizer.ggml.{place}_token_id")
        if fields.get(f"tokenizer.ggml.add_{place}_token", default) and number is not None:
            specials.append((tokens[number], number))
            template.insert(0 if place == "bos" else len(template), tokens[number])
    byte_level = processors.ByteLevel(trim_offsets=False)
    if not specials:
        tokenizer.post_processor = byte_level
        return
    pair = template + [f"{t}:1" if t != "$A" else "$B:1" for t in template]
    tokenizer.post_processor = processors.Sequence(
        [
            byte_level,
            processors.TemplateProcessing(single=template, pair=pair, special_tokens=specials),
        ]
    )


def _bad(path: Path, what: str, fix: str) -> ModelError:
    return ModelError(f"{path} {what}", hint=fix, details={"path": str(path)})
