"""Toolchains: the frozen versions that identify a compiler, and where they come from.

Resolved in this order, never from the host that merely looks up: `--toolchain NAME|FILE`,
lock, the recipe's `[toolchain]`, the identity the caller knows (the cpu backend's own, or a
worker interpreter's). A host without any SDK computes the same key from the frozen file.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

__all__ = ["Toolchain"]


@dataclass(frozen=True, slots=True)
class Toolchain:
    """Versions that identify a compiler.

    Attributes:
        name: for people ("sdk-2.28", "this environment"); never in a key.
        backend: "cpu" or "nxdi".
        packages: package → exact version, `+local` part included.
        python: interpreter that holds them, or None on a host that only computes keys.
        origin: which layer chose it ("flag --toolchain", "recipe llama-3.1-8b-trn1", …).
    """

    name: str
    backend: str
    packages: Mapping[str, str]
    python: str | None = None
    origin: str = field(default="", compare=False)

    def spec(self) -> dict[str, str]:
        """The `toolchain` member of a spec: versions only."""
        return dict(sorted(self.packages.items()))
