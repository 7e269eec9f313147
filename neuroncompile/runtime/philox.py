"""Philox4x32-10: random numbers as a function of (seed, position), in 32-bit arithmetic.

Counter-based, so a draw depends on nothing that happened before it and a graph without 64-bit
constants can make the same one. Salmon et al., "Parallel Random Numbers: As Easy as 1, 2, 3",
SC'11; constants from there.
"""

from __future__ import annotations

__all__ = ["philox4x32", "uniform"]

_MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
_WEYL = (0x9E3779B9, 0xBB67AE85)
_MASK = 0xFFFFFFFF


def philox4x32(
    counter: tuple[int, int, int, int], key: tuple[int, int]
) -> tuple[int, int, int, int]:
    """Four 32-bit words from a 128-bit counter and a 64-bit key, ten rounds."""
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(10):
        high0, low0 = divmod(_MULTIPLIERS[0] * c0, 1 << 32)
        high1, low1 = divmod(_MULTIPLIERS[1] * c2, 1 << 32)
        c0, c1, c2, c3 = high1 ^ c1 ^ k0, low1, high0 ^ c3 ^ k1, low0
        k0, k1 = (k0 + _WEYL[0]) & _MASK, (k1 + _WEYL[1]) & _MASK
    return c0, c1, c2, c3


def uniform(seed: int, position: int) -> float:
    """A number in [0, 1) with 53 random bits, fixed by (seed, position)."""
    high, low, _, _ = philox4x32((position & _MASK, 0, 0, 0), (seed & _MASK, seed >> 32 & _MASK))
    return ((high << 21) | (low >> 11)) * 2.0**-53
