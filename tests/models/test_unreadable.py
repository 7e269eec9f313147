"""A model that this user may not read is a wrong model, not a bug."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT

AS_NOBODY = """
import os, sys
from neuroncompile.cli import main
main([*sys.argv[1:-1], sys.argv[-1] + "-of-root"])  # imports all it needs
os.setgid(65534)
os.setuid(65534)
sys.exit(main(sys.argv[1:]))
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="takes root to become somebody else")
@pytest.mark.parametrize("closed", ["directory", "config.json", "model.safetensors"])
def test_exit_4_with_the_path(llama: Path, tmp_path: Path, closed: str) -> None:
    model = tmp_path / "model"
    model.mkdir()
    for file in filter(Path.is_file, llama.iterdir()):
        (model / file.name).write_bytes(file.read_bytes())
    for place in (tmp_path, *tmp_path.parents):
        if place.stat().st_mode & 1 == 0:
            place.chmod(place.stat().st_mode | 0o055)
    shut = model if closed == "directory" else model / closed
    shut.chmod(0o700 if closed == "directory" else 0o600)
    done = subprocess.run(
        [
            *(sys.executable, "-c", AS_NOBODY, "build", str(model), "--dry-run"),
            *("--store", str(tmp_path / "store")),
        ],
        capture_output=True,
        text=True,
        env={"PATH": "/nonexistent", "PYTHONPATH": str(ROOT), "HOME": "/nonexistent"},
    )
    assert done.returncode == 4, done.stderr
    assert str(model) in done.stderr
    assert "cannot be read" in done.stderr
