"""Adapters on the Hub: pinned, and only their small file fetched."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from neuroncompile.errors import GatedModelError, ModelError, ModelNotFoundError, NotCachedError
from neuroncompile.models.adapter import open_adapter
from neuroncompile.settings import HubSettings, Settings
from tests.models.hub_server import Hub, serve


@pytest.fixture
def hub() -> Iterator[Hub]:
    with serve() as hub:
        yield hub


@pytest.fixture
def settings(tmp_path: Path, hub: Hub) -> Settings:
    return Settings(
        store=tmp_path / "store",
        store_origin="test",
        offline=False,
        hub=HubSettings(endpoint=hub.endpoint, cache=tmp_path / "hub"),
        cache=tmp_path / "cache",
    )


def files(rank: int = 8) -> dict[str, bytes]:
    config = {"peft_type": "LORA", "r": rank, "target_modules": ["v_proj", "q_proj"]}
    return {
        "adapter_config.json": json.dumps(config).encode(),
        "adapter_model.safetensors": b"weights",
    }


def test_pinned_to_a_commit_without_its_weights(hub: Hub, settings: Settings) -> None:
    repo = hub.repo("org/a", files())
    first = repo.branches["main"]
    adapter = open_adapter("org/a", settings)
    assert (adapter.revision, adapter.rank, adapter.bias) == (first, 8, "none")
    assert adapter.target_modules == ("q_proj", "v_proj")
    assert not [request for request in hub.requests if "safetensors" in request]
    repo.commit(files(rank=32))
    assert open_adapter("org/a", settings).rank == 32
    assert open_adapter(f"org/a@{first}", settings).rank == 8
    assert open_adapter("org/a", settings, revision=first).revision == first


def test_offline_it_comes_from_the_cache(hub: Hub, settings: Settings) -> None:
    hub.repo("org/a", files())
    online = open_adapter("org/a", settings)
    hub.requests.clear()
    assert open_adapter("org/a", replace(settings, offline=True)) == online
    with pytest.raises(NotCachedError):
        open_adapter("org/other", replace(settings, offline=True))
    assert hub.requests == []


def test_what_is_no_adapter_is_said(hub: Hub, settings: Settings, tmp_path: Path) -> None:
    hub.repo("org/model", {"config.json": b"{}", "model.safetensors": b"x"})
    hub.repo("org/pickle", {**files(), "adapter_model.bin": b"x"})
    del hub.repos["org/pickle"].commits[hub.repos["org/pickle"].branches["main"]][
        "adapter_model.safetensors"
    ]
    hub.repo("org/gated", files(), gated=True)
    for reference, kind, words in (
        ("org/model", ModelError, "adapter_config.json"),
        ("org/pickle", ModelError, "adapter_model.safetensors"),
        ("org/gated", GatedModelError, "gated"),
        ("org/typo", ModelNotFoundError, "org/typo"),
        (str(tmp_path), ModelNotFoundError, "adapter_config.json"),
    ):
        with pytest.raises(kind, match=words) as raised:
            open_adapter(reference, settings)
        assert raised.value.hint
