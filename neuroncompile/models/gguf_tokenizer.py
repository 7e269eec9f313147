"""tokenizer.json and tokenizer_config.json from a GGUF header.

A byte-level tokenizer ("gpt2") only names its pre-tokenizer ("smollm", "llama-bpe"); the rules
are llama.cpp's (src/llama-vocab.cpp) or, where the model's own tokenizer.json says more, that
one's. A sentencepiece one ("llama") has scores instead of merges: pieces are joined best score
first. Both are spelt with the `tokenizers` library's parts.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

from neuroncompile.errors import ModelError, ToolchainError
from neuroncompile.models.gguf_header import GGUFHeader

__all__ = ["PRE_TOKENIZERS", "PreTokenizer", "tokenizer_config_of", "tokenizer_json_of"]


class PreTokenizer(NamedTuple):
    """How text is cut before merging.

    Attributes:
        expressions: each cuts the pieces of the one before it further.
        whole: a piece that is in the vocabulary is not merged up to it but taken as it is.
        nfc: the text is brought to Unicode's composed form first.
        bos: text begins with the beginning of sequence unless the file says otherwise.
    """

    expressions: tuple[str, ...]
    whole: bool = False
    nfc: bool = False
    bos: bool = False


_CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_WORDS = rf"{_CONTRACTIONS}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|%s| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*"
_SPACES = r"|\s*[\r\n]+|\s+(?!\S)|\s+"
_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)"
_UPPER, _LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_TEKKEN = (
    rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}*{_LOWER}+|[^\r\n\p{{L}}\p{{N}}]?{_UPPER}+{_LOWER}*"
    r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*" + _SPACES
)
_DIGITS = PreTokenizer((r"\p{N}", _GPT2))
_LLAMA3 = PreTokenizer((_WORDS % r"\p{N}{1,3}" + _SPACES,), whole=True, bos=True)
_QWEN2 = PreTokenizer((_WORDS % r"\p{N}" + _SPACES,))

PRE_TOKENIZERS: dict[str, PreTokenizer] = {
    "default": PreTokenizer((r"[\p{P}\$\+<=>\^~\|]+", _GPT2, r"\p{N}+", r"[0-9][0-9][0-9]")),
    "gpt-2": PreTokenizer((_GPT2,)),
    "smollm": _DIGITS,
    "starcoder": _DIGITS,
    "refact": _DIGITS,
    "codeshell": _DIGITS,
    "llama-bpe": _LLAMA3,
    "llama3": _LLAMA3,
    "llama-v3": _LLAMA3,
    "falcon3": _LLAMA3,
    "qwen2": _QWEN2._replace(nfc=True),
    "deepseek-r1-qwen": _QWEN2,
    "tekken": PreTokenizer((_TEKKEN,), whole=True),
}
"""`tokenizer.ggml.pre` of a byte-level tokenizer → its rule."""

_UNKNOWN, _CONTROL, _USER_DEFINED = 2, 3, 4  # tokenizer.ggml.token_type
_IDS = {"bos": "bos", "eos": "eos", "unknown": "unk", "padding": "pad"}


def tokenizer_json_of(header: GGUFHeader, path: Path) -> str:
    """The text of tokenizer.json.

    Raises:
        ModelError: a tokenizer that is not read, or an inconsistent one.
        ToolchainError: the `tokenizers` library is not installed.
    """
    try:
        from tokenizers import AddedToken
    except ImportError:
        raise ToolchainError(
            "reading a GGUF tokenizer needs the tokenizers library",
            hint="pip install 'neuroncompile[cpu]'",
        ) from None
    fields = header.fields
    kind = fields.get("tokenizer.ggml.model")
    if kind not in ("gpt2", "llama"):
        raise _bad(
            path,
            f"has a tokenizer of kind {kind!r:.60}, which is not read",
            "take the model in safetensors with its tokenizer.json",
        )
    tokens = _list(fields, "tokens", str, path)
    kinds = _list(fields, "token_type", int, path) if _given(fields, "token_type") else []
    if not tokens or len(kinds) not in (0, len(tokens)):
        raise _bad(path, "has no complete vocabulary", "convert the model again")
    vocabulary = {token: number for number, token in enumerate(tokens)}
    if len(vocabulary) != len(tokens):
        raise _bad(path, "has a token twice", "convert the model again")
    rule = None if kind == "llama" else _rule(fields, path)
    try:
        if rule is None:
            tokenizer = _sentencepiece(fields, vocabulary, path)
        else:
            tokenizer = _byte_level(fields, vocabulary, rule, path)
    except ModelError:
        raise
    except Exception as error:  # the library raises bare exceptions
        raise _bad(path, f"has a malformed vocabulary: {error}", "convert it again") from None
    pairs = list(zip(tokens, kinds, strict=False))
    special = (_CONTROL,) if rule is not None else (_UNKNOWN, _CONTROL)
    tokenizer.add_special_tokens(
        [AddedToken(t, normalized=False) for t, k in pairs if k in special]
    )
    tokenizer.add_tokens([AddedToken(t, normalized=False) for t, k in pairs if k == _USER_DEFINED])
    _surround(tokenizer, fields, tokens, bos=rule is None or rule.bos)
    return str(tokenizer.to_str())


def tokenizer_config_of(header: GGUFHeader) -> dict[str, Any]:
    """tokenizer_config.json: special tokens by their text, and the chat template."""
    fields = header.fields
    tokens = fields.get("tokenizer.ggml.tokens")
    config: dict[str, Any] = {"tokenizer_class": "PreTrainedTokenizerFast"}
    for theirs, ours in _IDS.items():
        number = _id(fields, theirs, tokens if isinstance(tokens, list) else [])
        if number is not None:
            config[f"{ours}_token"] = fields["tokenizer.ggml.tokens"][number]
    if isinstance(fields.get("tokenizer.chat_template"), str):
        config["chat_template"] = fields["tokenizer.chat_template"]
    config["clean_up_tokenization_spaces"] = False
    return config


def _rule(fields: dict[str, Any], path: Path) -> PreTokenizer:
    name = fields.get("tokenizer.ggml.pre", "default")
    if not isinstance(name, str) or name not in PRE_TOKENIZERS:
        raise _bad(
            path,
            f"has the pre-tokenizer {name!r:.60}, which is not read",
            f"read are: {', '.join(PRE_TOKENIZERS)}; or take the model in safetensors",
        )
    return PRE_TOKENIZERS[name]


def _byte_level(
    fields: dict[str, Any], vocabulary: dict[str, int], rule: PreTokenizer, path: Path
) -> Any:
    from tokenizers import Regex, Tokenizer, decoders, models, normalizers
    from tokenizers import pre_tokenizers as pre

    pairs = [tuple(merge.split(" ", 1)) for merge in _list(fields, "merges", str, path)]
    known = [pair for pair in pairs if len(pair) == 2 and "".join(pair) in vocabulary]
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=known, ignore_merges=rule.whole))
    if rule.nfc:
        tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre.Sequence(
        [
            *(pre.Split(Regex(e), behavior="isolated") for e in rule.expressions),
            pre.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def _sentencepiece(fields: dict[str, Any], vocabulary: dict[str, int], path: Path) -> Any:
    from tokenizers import Tokenizer, decoders, models, normalizers

    scores = _list(fields, "scores", float, path)
    if len(scores) != len(vocabulary):
        raise _bad(path, "has no score for each token", "convert the model again")
    tokens = list(vocabulary)
    unknown = _id(fields, "unknown", tokens)
    tokenizer = Tokenizer(
        models.BPE(
            vocab=vocabulary,
            merges=_joins(vocabulary, scores),
            unk_token=None if unknown is None else tokens[unknown],
            fuse_unk=True,
            byte_fallback=True,
        )
    )
    # as sentencepiece itself: a space before the text, and before what follows a special token
    prefix = fields.get("tokenizer.ggml.add_space_prefix", True) is not False
    spaces = normalizers.Replace(" ", "▁")
    tokenizer.normalizer = normalizers.Sequence(
        [normalizers.Prepend("▁"), spaces] if prefix else [spaces]
    )
    parts = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    tokenizer.decoder = decoders.Sequence([*parts, decoders.Strip(" ", 1, 0)] if prefix else parts)
    return tokenizer


def _joins(vocabulary: dict[str, int], scores: list[float]) -> list[tuple[str, str]]:
    """Every way to join two pieces to a third, best first.

    Equal scores are ordered as transformers orders them (`generate_merges`): sentencepiece takes
    the leftmost pair, which a list of merges cannot say.
    """
    found = []
    for (piece, _), score in zip(vocabulary.items(), scores, strict=True):
        splits = ((piece[:i], piece[i:]) for i in range(1, len(piece)))
        pairs = [(a, b) for a, b in splits if a in vocabulary and b in vocabulary]
        pairs.sort(key=lambda pair: (vocabulary[pair[0]], vocabulary[pair[1]]))
        found += [(score, a, b) for a, b in pairs]
    found.sort(key=lambda join: (join[0], len(join[1]), len(join[2])), reverse=True)
    return [(a, b) for _, a, b in found]


def _surround(tokenizer: Any, fields: dict[str, Any], tokens: list[str], *, bos: bool) -> None:
    """Begin and end tokens that the model was trained with."""
    from tokenizers import processors

    template, specials = ["$A"], []
    for place, default in (("bos", bos), ("eos", False)):
        number = _id(fields, place, tokens)
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


def _given(fields: dict[str, Any], name: str) -> bool:
    return fields.get(f"tokenizer.ggml.{name}") is not None


def _list(fields: dict[str, Any], name: str, kind: type, path: Path) -> list[Any]:
    value = fields.get(f"tokenizer.ggml.{name}")
    if not isinstance(value, list) or not all(type(entry) is kind for entry in value):
        raise _bad(path, f"has no usable tokenizer.ggml.{name}", "convert the model again")
    return value


def _id(fields: dict[str, Any], name: str, tokens: list[str]) -> int | None:
    number = fields.get(f"tokenizer.ggml.{name}_token_id")
    return number if type(number) is int and 0 <= number < len(tokens) else None


def _bad(path: Path, what: str, fix: str) -> ModelError:
    return ModelError(f"{path} {what}", hint=fix, details={"path": str(path)})
