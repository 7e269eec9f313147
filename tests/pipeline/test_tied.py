"""A model with tied embeddings runs the same from a directory and from the hub."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import SMALL, Run, write_llama
from tests.models.hub_server import serve


@pytest.mark.slow
def test_tied_embeddings_from_both_places(run: Run, tmp_path: Path) -> None:
    """The checkpoint has one matrix; whoever copies the head from it must have it at hand."""
    from safetensors import safe_open

    model = write_llama(tmp_path / "tied", tie_word_embeddings=True)
    with safe_open(model / "model.safetensors", "numpy") as file:
        assert "lm_head.weight" not in file.keys()  # noqa: SIM118 - no mapping
    ask = ("the cat", "--max-new-tokens=8", "--json", *SMALL)
    where = ("--store", str(tmp_path / "store"))
    here = run("run", str(model), *ask, *where)
    assert here.code == 0, here.err
    with serve() as hub:
        hub.repo("org/tied", {f.name: f.read_bytes() for f in model.iterdir()})
        env = {"HF_ENDPOINT": hub.endpoint, "HF_HOME": str(tmp_path / "hf")}
        there = run("run", "org/tied", *ask, *where, "--require-cached", **env)
    assert there.code == 0, there.err
    one, two = here.document["result"], there.document["result"]
    assert one["key"] == two["key"]
    assert one["completions"][0]["tokens"] == two["completions"][0]["tokens"]
    assert len(one["completions"][0]["tokens"]) == 8
