"""Whether two models mean the same tokens by the same ids.

A draft proposes ids to its target. Two sizes of one family often differ in `vocab_size` only by
padding (151,936 and 152,064 rows over one tokenizer); another tokenizer under the same size is
what makes garbage.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from neuroncompile.errors import ModelError
from neuroncompile.models.metadata import read_object

__all__ = ["check_vocabularies"]

TOKENIZER = "tokenizer.json"


def check_vocabularies(
    target: Path | None, draft: Path | None, sizes: tuple[Any, Any], names: tuple[str, str]
) -> str | None:
    """Compare target and draft; return a warning where there is nothing to compare.

    Args:
        target: directory of the target's tokenizer, or None.
        draft: directory of the draft's.
        sizes: their `vocab_size`s.
        names: of both, for people.

    Raises:
        ModelError: an id that means different tokens, or one that the other has no row for.
    """
    if target is None or draft is None:
        if sizes[0] == sizes[1]:
            return None
        return (
            f"vocab_size of {names[0]} is {sizes[0]} and of its draft {names[1]} {sizes[1]}; "
            "their tokenizers are not at hand to compare"
        )
    files = (target / TOKENIZER, draft / TOKENIZER)
    contents = tuple(file.read_bytes() for file in files)
    left = _tokens(files[0])
    right = left if contents[0] == contents[1] else _tokens(files[1])
    for token in sorted(left.keys() & right.keys()):
        if left[token] != right[token]:
            raise ModelError(
                f"the draft {names[1]} has another tokenizer than {names[0]}: token {token} is "
                f"{right[token]!r} there and {left[token]!r} here",
                hint="take a draft of the same tokenizer, usually a smaller model of the family",
                details={"token": token, "target": left[token], "draft": right[token]},
            )
    for own, rows, owner, other in (
        (left, sizes[1], names[0], names[1]),
        (right, sizes[0], names[1], names[0]),
    ):
        if own and isinstance(rows, int) and max(own) >= rows:
            raise ModelError(
                f"{owner} has token {max(own)}, and {other} has only {rows} (vocab_size)",
                hint="take a draft of the same tokenizer, usually a smaller model of the family",
                details={"token": max(own), "vocab_size": rows},
            )
    return None


def _tokens(path: Path) -> dict[int, str]:
    """Id → token of a tokenizer.json, added tokens included."""
    content = read_object(path)
    model = content.get("model")
    table = model.get("vocab") if isinstance(model, Mapping) else None
    found: dict[int, str] = {}
    if isinstance(table, Mapping):
        found = {number: token for token, number in table.items()}
    elif isinstance(table, list):  # Unigram: (token, score) in the order of ids
        found = {number: str(entry[0]) for number, entry in enumerate(table)}
    for entry in content.get("added_tokens") or ():
        found[entry["id"]] = entry["content"]
    return found
