"""Which values of a neuron config only repeat what its other values imply."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from neuroncompile.config.layers import fill_defaults
from neuroncompile.config.values import Value
from neuroncompile.hardware.targets import Target

__all__ = ["derived"]

ROOTS = ("batch_size", "enable_bucketing", "padding_side", "seq_len", "torch_dtype", "tp_degree")
"""Keywords whose default is a constant or the model's: they follow from no other keyword."""


def derived(neuron: Mapping[str, Any], among: Iterable[str]) -> set[str]:
    """Those of the keywords `among` that would have the same value if they were left out.

    Args:
        neuron: a spec's `neuron` member.
    """
    implied = set()
    for name in set(among) & set(neuron) - set(ROOTS):
        tree = {other: Value(value, "") for other, value in neuron.items() if other != name}
        fill_defaults(tree, {}, None, Target("cpu"))
        if name in tree and tree[name].value == neuron[name]:
            implied.add(name)
    return implied
