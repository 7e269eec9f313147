"""Power cuts at random moments of random histories, with what was not synced lost or mangled."""

from __future__ import annotations

import json
import os
import random
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from neuroncompile.store import Store
from tests.faults.crash import Trace
from tests.faults.world import key, quick, survey

pytestmark = pytest.mark.slow

STEPS = 25
TEXTS = ("x", "y")


class Claims:
    """What a store had promised when the power went."""

    def __init__(self, trace: Trace, at: int) -> None:
        self.made: set[int] = set()
        self.spoilt: set[int] = set()
        self.refs: dict[str, int] = {}
        for mark in trace.marks:
            if mark.when > at:
                break
            what, *rest = json.loads(mark.text)
            if what == "made":
                self.made.add(rest[0])
                self.spoilt.discard(rest[0])
            elif what == "spoilt":
                self.spoilt.add(rest[0])
            elif what == "may go":
                self.made.difference_update(rest)
            elif what == "named":
                self.refs[rest[0]] = rest[1]
            else:
                self.refs.pop(rest[0], None)


def wrong_refs(root: Path, claims: Claims) -> list[str]:
    store, problems = Store(root), []
    for name, number in claims.refs.items():
        try:
            if store.find(name).key != key(number):
                problems.append(f"ref {name} names another artifact")
        except Exception as error:
            problems.append(f"ref {name} is lost: {error}")
    return problems


def after_cut(root: Path, claims: Claims) -> list[str]:
    """Survey; then use the store, and survey again."""
    numbers = range(1, 7)
    kept = dict.fromkeys(claims.made, TEXTS)
    maybe = {number: TEXTS for number in numbers if number not in kept}
    problems = survey(root, kept=kept, maybe=maybe, cut=True, damaged=bool(claims.spoilt))
    problems += wrong_refs(root, claims)
    if not problems:
        for number in numbers:
            quick(Store(root), number, "x")
        problems = survey(root, kept=dict.fromkeys(numbers, TEXTS), cut=True)
        problems = [f"after going on: {problem}" for problem in problems]
    return problems


def tree(root: Path) -> dict[str, Any]:
    """Path → mode, date and bytes of every file; the numbers of inodes in `ingest/` left out."""
    found: dict[str, Any] = {}
    for path in sorted(root.rglob("*")):
        name = str(path.relative_to(root))
        if path.is_symlink():
            found[name] = os.readlink(path)
        elif path.is_dir():
            found[name] = "directory"
        else:
            seen = path.stat()
            data = path.read_bytes()
            if path.parent.name == "ingest":
                data = b" ".join(data.split()[2:4])
            found[name] = (oct(seen.st_mode), seen.st_mtime_ns, data, seen.st_nlink)
    return found


@pytest.mark.parametrize("seed", range(6))
def test_power_cuts(seed: int, record: Any, memory: Path, counts: Any) -> None:
    trace, steps = record(seed, STEPS)
    replayed = memory / "replayed"
    trace.cut(trace.length, "none", 0, replayed)
    assert tree(replayed) == tree(memory / "recorded" / "store"), "the log is not complete"
    chance = random.Random(seed)
    wrong: list[str] = []
    found: Counter[str] = Counter()
    for number in range(80):
        at = chance.randint(1, trace.length)
        model = ("ordered", "posix")[number % 2]
        root = memory / f"{model}-{at}-{number}" / "store"
        root.parent.mkdir()
        trace.cut(at, model, number, root)
        found[model] += 1
        found["artifacts that had to be there"] += len(Claims(trace, at).made)
        problems = after_cut(root, Claims(trace, at))
        wrong += [f"seed {seed}, {model} cut {number} before call {at}: {p}" for p in problems]
        shutil.rmtree(root.parent)
    counts(f"power cuts, history {seed} of {trace.length} calls", found)
    assert not wrong, "\n".join([*wrong[:10], f"{len(wrong)} in all", *steps])
