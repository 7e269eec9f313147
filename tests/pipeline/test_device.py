"""What a worker is told and where it is kept before a program is loaded."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from neuroncompile.output import Output
from neuroncompile.pipeline.device import _bind, _ranks


@pytest.fixture
def worker() -> Iterator[Any]:
    """A process that waits, where a worker has its own."""
    with subprocess.Popen(
        [sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE
    ) as process:
        yield SimpleNamespace(process=process)
        process.kill()


def ranks(view: Path, constructed: dict[str, Any], tp_degree: int = 4) -> int:
    (view / "constructed.json").write_text(json.dumps(constructed))
    return _ranks(cast(Any, SimpleNamespace(config={"tp_degree": tp_degree})), view)


def test_a_core_for_each_rank_that_was_constructed(tmp_path: Path) -> None:
    neuron = {"tp_degree": 4, "ep_degree": 2, "world_size": 8, "local_ranks_size": 8}
    assert ranks(tmp_path, {"neuron_config": neuron}) == 8
    assert ranks(tmp_path, {"text_config": {"neuron_config": neuron}, "neuron_config": {}}) == 8
    assert ranks(tmp_path, {"neuron_config": {}}) == 4
    assert ranks(tmp_path, {}, tp_degree=2) == 2


def test_a_worker_is_bound_to_what_is_near_and_allowed(
    worker: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    allowed = sorted(os.sched_getaffinity(0))
    _bind(worker, (1,), [allowed[0], 100_000], "0-3", Output())
    assert os.sched_getaffinity(worker.process.pid) == {allowed[0]}
    assert f"cores 0-3, bound to NUMA node 1 (CPUs {allowed[0]})" in capsys.readouterr().err


def test_nothing_near_binds_nothing(worker: Any, capsys: pytest.CaptureFixture[str]) -> None:
    for cpus in ((), (100_000,)):
        _bind(worker, (), cpus, "0", Output(verbosity=1))
        assert os.sched_getaffinity(worker.process.pid) == os.sched_getaffinity(0)
    assert "cores 0; not bound" in capsys.readouterr().err
