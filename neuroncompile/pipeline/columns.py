"""Tables that fit a terminal of 80 columns: long cells go on in the next line."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest

__all__ = ["WIDTH", "fitted"]

WIDTH = 80
_GAP = 2  # between columns, as `Output.table` sets them
_LEAST = 10


def fitted(
    headers: Sequence[str], rows: Sequence[Sequence[str]], *, width: int = WIDTH
) -> list[tuple[str, ...]]:
    """`rows` with cells broken so that the table is at most `width` characters wide.

    The column gives way that costs the fewest lines, but the names in the first stay whole up to
    half of the width, so that they can be searched for. Nothing is cut off: what does not fit
    stands in further rows, whose other cells are empty.
    """
    columns = list(zip(headers, *rows, strict=True))
    widths = [max(map(len, column)) for column in columns]
    while sum(widths) > width - _GAP * (len(widths) - 1):
        wide = [i for i, w in enumerate(widths) if w > (_LEAST if i else width // 2)]
        if not wide:
            break
        widths[min(wide, key=lambda i: (_lines(columns[i], widths[i] - 1), -widths[i]))] -= 1
    lines: list[tuple[str, ...]] = []
    for row in rows:
        cells = [_broken(cell, limit) for cell, limit in zip(row, widths, strict=True)]
        lines += zip_longest(*cells, fillvalue="")
    return lines


def _lines(column: Sequence[str], limit: int) -> int:
    """Lines that breaking a column adds."""
    return sum(len(_broken(cell, limit)) - 1 for cell in column)


def _broken(text: str, limit: int) -> list[str]:
    """Pieces of at most `limit` characters, parted after a blank, comma, dot or underscore."""
    pieces = []
    while len(text) > limit:
        blank = text.rfind(" ", 0, limit + 1)
        cut = blank if blank > 0 else max(text.rfind(mark, 0, limit) for mark in ",._") + 1
        cut = cut if cut > limit // 3 else limit
        pieces.append(text[:cut].rstrip())
        text = text[cut:].lstrip()
    return [*pieces, text]
