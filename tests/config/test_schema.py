from __future__ import annotations

import re

import pytest

from neuroncompile.config.renamed import RENAMED
from neuroncompile.config.schema import (
    CLASSES,
    FAMILY_CLASSES,
    LEGAL,
    MINIMUM,
    fields_of,
)

KINDS = {"int", "bool", "str", "float", "dtype", "ints", "strs", "list", "dict", "buckets"}
REACHES = {"weights", "graph", "flags", "files", "runtime", "unused"}
ALL = {row[0] for rows in CLASSES.values() for row in rows}
ROWS = [(owner, row) for owner, rows in CLASSES.items() for row in rows]


@pytest.mark.parametrize(("owner", "row"), ROWS, ids=lambda part: str(part)[:40])
def test_row_is_well_formed(owner: str, row: tuple[str, str, object, str]) -> None:
    name, kinds, default, reaches = row
    assert re.fullmatch(r"[a-z][a-z0-9_]*", name)
    assert reaches in REACHES
    for kind in kinds.split("|"):
        assert kind in KINDS or kind in CLASSES
    if isinstance(default, str) and default.startswith("="):
        sources = set(re.findall(r"[a-z_]{5,}", default)) - {"target"}
        assert sources <= ALL


def test_no_keyword_stands_twice() -> None:
    for family in (*FAMILY_CLASSES, None):
        names = [
            row[0]
            for owner in FAMILY_CLASSES.get(
                family or "", ("NeuronConfig", "MoENeuronConfig", "MultimodalVisionNeuronConfig")
            )
            for row in CLASSES[owner]
        ]
        assert len(names) == len(set(names)), family
    for owner, rows in CLASSES.items():
        assert len({row[0] for row in rows}) == len(rows), owner


def test_side_tables_name_real_keywords() -> None:
    assert set(LEGAL) <= ALL
    assert set(MINIMUM) <= ALL
    assert {part for name in RENAMED.values() for part in name.split(".")} <= ALL
    assert not set(RENAMED) & {row[0] for row in CLASSES["NeuronConfig"]}


def test_families_differ_by_their_classes() -> None:
    assert "glu_mlp" not in fields_of("llama")
    assert "glu_mlp" in fields_of("qwen3_moe")
    assert "skip_vision" in fields_of("mllama")
    assert "sliding_window_attention_dp_degree" in fields_of("gpt_oss")
    assert fields_of("somebodys_own").keys() == fields_of(None).keys()
    assert len(fields_of("llama")) == len(CLASSES["NeuronConfig"]) + 1  # fused_spec_config
    assert "vision_neuron_config" in fields_of("pixtral")
    assert "vision_neuron_config" not in fields_of("llama")


INSTALLED = {
    "models.config": (
        "NeuronConfig",
        "MultimodalVisionNeuronConfig",
        "MoENeuronConfig",
        "OnDeviceSamplingConfig",
        "ChunkedPrefillConfig",
        "HybridShardingConfig",
        "TensorCaptureConfig",
        "TensorReplacementConfig",
        "FusedSpecNeuronConfig",
    ),
    "modules.lora_serving": ("LoraServingConfig",),
}


@pytest.mark.parametrize(
    ("module", "owner"), [(module, owner) for module, names in INSTALLED.items() for owner in names]
)
def test_the_table_is_the_installed_nxdis(module: str, owner: str) -> None:
    """Where NxDI is installed, every keyword its constructors take is a row."""
    installed = pytest.importorskip(f"neuronx_distributed_inference.{module}")
    import inspect

    constructor = getattr(installed, owner).__init__
    taken = set(re.findall(r"kwargs\.pop\(\s*[\"'](\w+)", inspect.getsource(constructor)))
    signature = inspect.signature(constructor).parameters.values()
    taken |= {p.name for p in signature if p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL)}
    taken -= {"self", "logical_neuron_cores"}
    assert taken
    assert taken <= {row[0] for row in CLASSES[owner]}
