"""The schema against the constructors of NxD Inference's classes: every keyword and default."""

from __future__ import annotations

import json
import math
import subprocess
from pathlib import Path
from typing import Any

import pytest

from neuroncompile.config.schema import CLASSES
from tests.backends.nxdi import vendor

pytestmark = [pytest.mark.neuron, vendor.needed]

MODULE = "neuronx_distributed_inference.models.config"
NAMES = (
    *("NeuronConfig", "MoENeuronConfig", "MultimodalVisionNeuronConfig", "OnDeviceSamplingConfig"),
    *(
        "ChunkedPrefillConfig",
        "HybridShardingConfig",
        "TensorCaptureConfig",
        "KVQuantizationConfig",
    ),
    *("TensorReplacementConfig", "BlockwiseMatmulConfig", "RouterConfig"),
)
OLDER = {"logical_neuron_cores"}
"""An older name, which `config.renamed` reads."""
CLOSED = {"block_sharding_strategy"}
"""Its default is a member of a package that is not public."""


@pytest.fixture(scope="module")
def theirs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, dict[str, Any]]]:
    """Class → keyword → default, as `constructors.py` reads them."""
    script = Path(__file__).with_name("constructors.py")
    done = subprocess.run(
        [str(vendor.PYTHON), "-s", str(script), *(f"{MODULE}:{name}" for name in NAMES)],
        capture_output=True,
        text=True,
        env=vendor.environment(tmp_path_factory.mktemp("site")),
    )
    assert done.returncode == 0, done.stderr[-2000:]
    found: dict[str, dict[str, dict[str, Any]]] = json.loads(done.stdout.split("@@")[1])
    return found


def alike(value: Any) -> Any:
    """Empty lists and tables are no value; infinity is text in JSON."""
    if isinstance(value, float) and math.isinf(value):
        return "inf" if value > 0 else "-inf"
    return None if value in ((), [], {}) else list(value) if isinstance(value, tuple) else value


@pytest.mark.parametrize("name", NAMES)
def test_every_keyword_and_default(name: str, theirs: dict[str, dict[str, dict[str, Any]]]) -> None:
    ours = {row[0]: row[2] for row in CLASSES[name]}
    flat = {"router_act_fn", "router_dtype"} if name == "RouterConfig" else set()  # from_kwargs
    assert set(ours) == set(theirs[name]) - OLDER - flat
    for keyword, said in theirs[name].items():
        default = ours.get(keyword)
        derived = isinstance(default, str) and default.startswith("=")
        if "value" in said and not derived and keyword not in OLDER | CLOSED | flat:
            assert alike(default) == alike(said["value"]), keyword
