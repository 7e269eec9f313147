"""The effective neuron config: each value with the layer that set it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from neuroncompile.hardware.targets import Target

__all__ = ["NeuronConfig", "Value"]


class Value(NamedTuple):
    """One effective value.

    Attributes:
        value: JSON-like; a mapping only where NxDI takes a free-form table.
        origin: the layer in words for a person: "default", "default, derived from seq_len",
            "model", "recipe smollm2-135m", "environment NEURON_LOGICAL_NC_CONFIG",
            "flag --seq-len", "--set".
    """

    value: Any
    origin: str


class NeuronConfig(Mapping[str, Any]):
    """NxDI keywords and their effective values, nested configs as plain dicts.

    Reading it as a mapping gives values (`config["seq_len"]`); it holds what a layer set
    and the defaults of ours, not NxDI's remaining defaults: those are the toolchain's, whose
    version is in the key.

    Attributes:
        target: the target with `logical_nc_config` applied.
    """

    __slots__ = ("_tree", "target")

    def __init__(self, tree: Mapping[str, Any], target: Target) -> None:
        self._tree = dict(tree)
        self.target = target

    def __getitem__(self, name: str) -> Any:
        return _plain(self._tree[name])

    def __iter__(self) -> Iterator[str]:
        return iter(self._tree)

    def __len__(self) -> int:
        return len(self._tree)

    def plain(self) -> dict[str, Any]:
        """Nested plain values, as a spec's `neuron` member and NxDI's constructor take them."""
        return {name: _plain(node) for name, node in self._tree.items()}

    def origin(self, path: str) -> str:
        """Where a dotted name's value came from (`"on_device_sampling_config.top_k"`).

        Raises:
            KeyError: the config does not hold that value.
        """
        for name, value in self._leaves():
            if name == path:
                return value.origin
        raise KeyError(path)

    def rows(self) -> list[tuple[str, Any, str]]:
        """(dotted name, value, origin) in the schema's order, for `build --dry-run`."""
        return [(name, value.value, value.origin) for name, value in self._leaves()]

    def _leaves(self) -> Iterator[tuple[str, Value]]:
        yield from _walk(self._tree, "")

    def __repr__(self) -> str:
        return f"NeuronConfig({self.plain()!r})"


def _plain(node: Any) -> Any:
    if isinstance(node, Value):
        return node.value
    return {name: _plain(child) for name, child in node.items()}


def _walk(tree: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, Value]]:
    for name, node in tree.items():
        if isinstance(node, Value):
            yield prefix + name, node
        else:
            yield from _walk(node, f"{prefix}{name}.")
