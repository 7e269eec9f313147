"""Hits and misses are counted once, whoever counts while they are folded."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from neuroncompile.store import events
from neuroncompile.store.gc import Policy


def counted(kit: Any) -> tuple[int, int]:
    totals = kit.fresh().totals()
    return totals.hits, totals.misses


def test_what_others_count_during_a_fold_is_counted_once(
    kit: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    artifact = kit.publish(1, provenance={"seconds": 2.5})
    size = sum(layer.size for layer in artifact.layers)
    for _ in range(3):
        kit.store.count("hit", "graph", artifact.key)
    kit.store.count("miss", "graph", artifact.key)
    rename = os.rename

    def meanwhile(source: Path, target: Path) -> None:
        rename(source, target)
        kit.store.count("hit", "graph", artifact.key)

    with monkeypatch.context() as patch:
        patch.setattr(events.os, "rename", meanwhile)
        events.fold(kit.v1, lambda kind, key: (size, 2.5))
    assert counted(kit) == (4, 1)
    kit.store.collect(Policy(), dry_run=False)
    assert counted(kit) == (4, 1)
    totals = kit.store.totals()
    assert (totals.bytes, totals.seconds) == (4 * size, 10.0)


def test_what_a_killed_fold_left_is_not_lost(kit: Any) -> None:
    artifact = kit.publish(1)
    kit.store.count("hit", "graph", artifact.key)
    os.rename(kit.v1 / "stats" / "log", kit.v1 / "stats" / "log.1")
    kit.store.count("hit", "graph", artifact.key)
    assert counted(kit) == (2, 0)
    kit.store.collect(Policy(), dry_run=False)
    assert counted(kit) == (2, 0)


def test_nothing_is_made_to_count(kit: Any) -> None:
    kit.store.count("hit", "graph", kit.key(1))
    assert not kit.root.exists()
    assert counted(kit) == (0, 0)
    kit.publish(1)
    shutil.rmtree(kit.v1 / "stats", ignore_errors=True)
    (kit.v1 / "stats").write_text("in the way")
    kit.store.count("hit", "graph", kit.key(1))
    assert counted(kit) == (0, 0)
