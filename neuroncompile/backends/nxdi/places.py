"""What a log tells of places: the graph that failed, and the files of kernels it names.

NxD compiles every graph in `<submodel>/_tp<rank>_bk<index>/` below its work directory, and an
application of several programs has one such tree for each.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

__all__ = ["kernel_files", "place"]

_PLACE = re.compile(r"(?:(text_model|vision_model)/)?([\w.-]+)/_tp\d+_bk(\d+)\b")
_BUCKET = re.compile(r"Compilation failed for (\w+) bucket (\d+)")  # NxD's model_builder.py
_KERNEL = re.compile(r"Kernel file '([^']+)'|(/[!#-&(-~]{1,400}?/[0-9a-f]{16}/[A-Za-z0-9_.+-]+)")


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
