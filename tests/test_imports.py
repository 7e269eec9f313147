"""Imports point down the list of rooms, and a build hit stays light."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import neuroncompile

PACKAGE = Path(neuroncompile.__file__).parent

LEVELS = [
    {"cli"},
    {"pipeline", "verify", "bench"},
    {"config", "tiers", "backends"},
    {"store", "runtime"},
    {"keys", "models", "hardware"},
    {"output"},
    {"settings"},
    {"errors"},
]
MAY_PRINT = {"cli", "pipeline"}


def room_of(path: Path) -> str:
    relative = path.relative_to(PACKAGE)
    return relative.parts[0].removesuffix(".py")


def level_of(room: str) -> int:
    return next(i for i, rooms in enumerate(LEVELS) if room in rooms)


def imported_rooms(tree: ast.AST) -> set[str]:
    rooms = set()
    for node in ast.walk(tree):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            names = [node.module or ""]
            if node.module == "neuroncompile":
                names = [f"neuroncompile.{alias.name}" for alias in node.names]
        rooms |= {n.split(".")[1] for n in names if n.startswith("neuroncompile.")}
    return rooms - {"__version__"}


FILES = sorted(p for p in PACKAGE.rglob("*.py") if p.parent != PACKAGE or p.stem != "__init__")


def test_every_room_has_a_level() -> None:
    rooms = {room_of(p) for p in FILES} - {"recipes", "__main__"}
    assert rooms <= set().union(*LEVELS)


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_imports_point_down(path: Path) -> None:
    if path.stem == "__main__" and path.parent == PACKAGE:
        return
    room = room_of(path)
    for other in imported_rooms(ast.parse(path.read_text())) - {room}:
        assert level_of(other) > level_of(room), f"{path} must not import {other}"
        if other == "output":
            assert room in MAY_PRINT, f"{path}: only {MAY_PRINT} use output"


def test_files_tell_one_story() -> None:
    long = {str(p): n for p in FILES if (n := len(p.read_text().splitlines())) > 450}
    # one file by its nature: another interpreter runs it, which has nothing else of ours
    long.pop(str(PACKAGE / "backends/nxdi/worker.py"), None)
    assert not long
