"""Rotary tables, made on the host so that their numbers stay out of every graph.

The formulas are transformers' (modeling_rope_utils.py, 5.24), in float32 like there.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["inverse_frequencies", "tables"]

Floats = NDArray[np.float32]


def tables(rope: Mapping[str, Any], head_dim: int, length: int) -> tuple[Floats, Floats]:
    """Cosines and sines of every position, each [length, head_dim / 2]."""
    positions = np.arange(length, dtype=np.float32)
    angles = positions[:, None] * inverse_frequencies(rope, head_dim)[None]
    return np.cos(angles), np.sin(angles)


def inverse_frequencies(rope: Mapping[str, Any], head_dim: int) -> Floats:
    """Radians per position of each pair of dimensions, [head_dim / 2].

    Args:
        rope: `kind` ("default", "linear" or "llama3"), `theta` and the kind's own fields, as
            in `neuroncompile.models.architecture.Rope`.
    """
    exponents = np.arange(0, head_dim, 2).astype(np.float32) / np.float32(head_dim)
    powers = np.power(float(rope["theta"]), exponents.astype(np.float64)).astype(np.float32)
    inverse: Floats = np.float32(1) / powers
    if rope["kind"] == "linear":
        inverse = inverse / np.float32(rope["factor"])
    elif rope["kind"] == "llama3":
        inverse = _llama3(inverse, rope)
    return inverse


def _llama3(inverse: Floats, rope: Mapping[str, Any]) -> Floats:
    """Stretch wavelengths longer than the original context, blend those near it."""
    factor, low, high = (
        np.float32(rope[name]) for name in ("factor", "low_freq_factor", "high_freq_factor")
    )
    original = np.float32(rope["original_max_position_embeddings"])
    wavelength = np.float32(2 * np.pi) / inverse
    stretched = np.where(wavelength > original / low, inverse / factor, inverse)
    smooth = (original / wavelength - low) / (high - low)
    blended = (1 - smooth) * stretched / factor + smooth * stretched
    between = (wavelength >= original / high) & (wavelength <= original / low)
    return np.where(between, blended, stretched).astype(np.float32)
