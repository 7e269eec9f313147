"""A log, and what it tells of places: the graph that failed, the files of kernels it names.

NxD compiles every graph in `<submodel>/_tp<rank>_bk<index>/` below its work directory, and an
application of several programs has one such tree for each.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

__all__ = ["Log", "kernel_files", "place"]

_ANSI = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")

_PLACE = re.compile(r"(?:(text_model|vision_model)/)?([\w.-]+)/_tp\d+_bk(\d+)\b")
_BUCKET = re.compile(r"Compilation failed for (\w+) bucket (\d+)")  # NxD's model_builder.py
_KERNEL = re.compile(r"Kernel file '([^']+)'|(/[!#-&(-~]{1,400}?/[0-9a-f]{16}/[A-Za-z0-9_.+-]+)")


class Log:
    """Lines without colours, to be searched as a whole: a compiler's log may have millions.

    Attributes:
        lines: as they came, split at line ends.
        text: the same in one piece.
    """

    def __init__(self, lines: Iterable[str]) -> None:
        self.text = _ANSI.sub("", "\n".join(lines))
        self.lines = self.text.split("\n")

    def find(self, pattern: re.Pattern[str]) -> Iterator[tuple[re.Match[str], int, str]]:
        """Every match with its line's number, from 0, and what stands before it in that line.

        Args:
            pattern: matches within one line; `^` needs MULTILINE.
        """
        at = seen = 0
        for match in pattern.finditer(self.text):
            at += self.text.count("\n", seen, match.start())
            seen = match.start()
            yield match, at, self.text[self.text.rfind("\n", 0, seen) + 1 : seen]

    def first(self, pattern: re.Pattern[str]) -> tuple[re.Match[str], int] | None:
        """The first match with its line's number."""
        return next(((match, at) for match, at, _ in self.find(pattern)), None)


def place(text: Sequence[str], at: int | None, graph: Mapping[str, Any] | None) -> dict[str, Any]:
    """Where it failed: as the caller knows, else as the path nearest to line `at` tells.

    Returns:
        Of program, submodel, index, batch and bucket what is known.
    """
    if graph:
        names = ("program", "submodel", "index", "batch", "bucket")
        return {name: graph[name] for name in names if graph.get(name) is not None}
    if at is None:
        return {}
    nearby = [*text[at : at + 6], *reversed(text[max(0, at - 200) : at])]
    for line in nearby:
        if match := _BUCKET.search(line):
            return {"submodel": match[1], "index": int(match[2])}
        if match := _PLACE.search(line):
            program, submodel, index = match.groups()
            return {"program": program or "", "submodel": submodel, "index": int(index)}
    return {}


def kernel_files(lines: Iterable[str]) -> tuple[str, ...]:
    """Files of kernels that a log or an HLO names, as `/…/<16 hex digits>/<file>`.

    In an HLO a name may have a letter too many, which belongs to what follows it.
    """
    found = (match[1] or match[2] for line in lines for match in _KERNEL.finditer(line))
    return tuple(dict.fromkeys(found))
