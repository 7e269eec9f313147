"""What is kept about how an artifact came to be."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from neuroncompile.pipeline.plan import make_plan
from neuroncompile.pipeline.provenance import provenance
from neuroncompile.pipeline.request import BuildRequest
from neuroncompile.settings import HubSettings, load_settings
from tests.models.hub_server import serve
from tests.models.test_hub import files


def test_the_commit_of_model_and_draft_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serve() as hub:
        first = hub.repo("org/m", files()).branches["main"]
        second = hub.repo("org/small", files(intermediate_size=64)).branches["main"]
        settings = replace(
            load_settings(store=str(tmp_path / "store")),
            hub=HubSettings(endpoint=hub.endpoint, cache=tmp_path / "hub"),
        )
        request = BuildRequest(
            model="org/m",
            target="trn2",
            toolchain="sdk-2.28",
            draft="org/small@main",
            sets=(
                "seq_len=64",
                "enable_fused_speculation=true",
                "speculation_length=3",
                "on_device_sampling_config.global_topk=64",
            ),
        )
        plan = make_plan(request, settings)
        hub.repos["org/small"].commit(files(intermediate_size=64, bos_token_id=3))
        moved = make_plan(request, settings)
    record = provenance(plan, ["a graph"], 1.0)
    assert (record["revision"], record["draft"]["revision"]) == (first, second)
    assert (plan.model.revision, plan.spec["model"]["vocab_size"]) == (first, 64)
    # a draft's revision is not in the key of the program
    assert moved.draft is not None
    assert moved.draft.revision != second
    assert moved.key == plan.key
