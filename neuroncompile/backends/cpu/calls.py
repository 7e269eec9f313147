"""The calls of one bucket, strung together so that a step costs Python next to nothing.

Every input but the first is a persistent tensor over host memory. A layer's output handle is
stored straight into the next layer's first input, so thirty layers are thirty `Run`s and a
few references each.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from ctypes import c_void_p
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from neuroncompile.backends.cpu.aoti import Call, Program, Torch

__all__ = ["Cache", "Stage"]

Floats = NDArray[np.float32]


class Cache:
    """Keys and values of all layers and slots, [slots + scratch, heads, length, head size]."""

    def __init__(self, torch: Torch, program: Mapping[str, Any]) -> None:
        model = program["model"]
        self._torch = torch
        self._shape = (
            program["batch_size"] + 1,
            model["num_key_value_heads"],
            program["seq_len"],
            model["head_dim"],
        )
        # Pages of a zeroed array exist once they are written: unused slots cost nothing.
        self._memory = [
            np.zeros(self._shape, np.float32) for _ in range(2 * model["num_hidden_layers"])
        ]
        self._handles: dict[tuple[int, int | None], int] = {}
        self.count = int(model["num_hidden_layers"])

    def layer(self, index: int, slot: int | None) -> tuple[int, int]:
        """Handles of a layer's keys and values: one slot's own, or all slots' for None."""
        return self._handle(2 * index, slot), self._handle(2 * index + 1, slot)

    def close(self) -> None:
        for handle in self._handles.values():
            self._torch.release(handle)
        self._handles.clear()
        self._memory.clear()

    def _handle(self, index: int, slot: int | None) -> int:
        if (index, slot) not in self._handles:
            memory = self._memory[index] if slot is None else self._memory[index][slot : slot + 1]
            self._handles[index, slot] = self._torch.tensor(
                int(memory.ctypes.data), memory.shape, "float32"
            )
        return self._handles[index, slot]


class Stage:
    """One submodel at one bucket.

    Attributes:
        bucket: prompt tokens, or cache positions read.
        x: [batch, tokens, hidden] float32, the embedded tokens.
        cos, sin: [batch, tokens, head_dim / 2] float32.
        rows: [batch] int64: positions in token generation, the last real token's index in
            context encoding.
        slots: [batch] int64, token generation only.
    """

    def __init__(
        self,
        torch: Torch,
        cache: Cache,
        layers: Sequence[Program],
        edge: Program | None,
        *,
        batch: int,
        tokens: int,
        bucket: int,
        hidden: int,
        head_dim: int,
        vocabulary: int,
        encodes: bool,
    ) -> None:
        self.bucket, self.encodes = bucket, encodes
        self.x = np.zeros((batch, tokens, hidden), np.float32)
        self.cos = np.zeros((batch, tokens, head_dim // 2), np.float32)
        self.sin = np.zeros_like(self.cos)
        self.rows = np.zeros(batch, np.int64)
        self.slots = np.zeros(batch, np.int64)
        self._torch, self._cache, self._layers, self._edge = torch, cache, layers, edge
        self._shape, self._vocabulary = (batch, tokens, hidden), vocabulary
        self._last = np.zeros((batch, hidden), np.float32)
        self._inputs = [self._tensor(a) for a in (self.x, self.cos, self.sin)]
        self._rows, self._slots = self._tensor(self.rows), self._tensor(self.slots)
        self._edge_call = Call(torch, edge, []) if edge else None
        self._edge_input = self._tensor(self._last)
        self._calls: dict[int | None, list[Call]] = {}
        self._output = c_void_p()

    def run(self, slot: int | None, last: int) -> Floats:
        """Logits [batch, vocabulary], valid until the next call.

        Args:
            slot: whose cache is filled; None for all (token generation).
            last: which token of each row goes on to the edge.
        """
        calls = self._calls.get(slot)
        if calls is None:
            calls = self._calls[slot] = self._bind(slot)
        output = ctypes.addressof(self._output)
        self._torch.refer(self._inputs[0], calls[0].first)
        for call, following in pairwise(calls):
            call(following.first)
        calls[-1](output)
        if self._edge_call is not None:
            np.copyto(self._last, self._read(self._shape)[:, last])
            self._torch.refer(self._edge_input, self._edge_call.first)
            self._edge_call(output)
        return self._read((self._shape[0], self._vocabulary))

    def _read(self, shape: tuple[int, ...]) -> Floats:
        """The last output, copied out and given back to libtorch."""
        handle = self._output.value
        assert handle is not None
        pointer = ctypes.cast(self._torch.address(handle), ctypes.POINTER(ctypes.c_float))
        values = np.ctypeslib.as_array(pointer, shape).copy()
        self._torch.release(handle)
        return values

    def _bind(self, slot: int | None) -> list[Call]:
        cos_sin = self._inputs[1:]
        given = [] if self.encodes else [self._rows, self._slots]
        if self._edge is not None:
            return [
                Call(self._torch, p, [*cos_sin, *given, *self._cache.layer(i, slot)])
                for i, p in enumerate(self._layers)
            ]
        layers = self._cache.count
        caches = [handle for i in range(layers) for handle in self._cache.layer(i, slot)]
        given = [self._rows] if self.encodes else given
        return [Call(self._torch, self._layers[0], [*cos_sin, *given, *caches])]

    def _tensor(self, array: NDArray[Any]) -> int:
        return self._torch.tensor(int(array.ctypes.data), array.shape, array.dtype.name)
