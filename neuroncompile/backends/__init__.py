"""What compiles and runs: one subpackage a backend, behind one protocol."""

from __future__ import annotations

from neuroncompile.backends.base import Backend, File, Graph

__all__ = ["Backend", "File", "Graph", "backend_for"]


def backend_for(platform: str) -> Backend:
    """The backend of a target's platform."""
    if platform == "cpu":
        from neuroncompile.backends.cpu.backend import CpuBackend

        return CpuBackend()
    from neuroncompile.backends.nxdi.backend import NxdiBackend

    return NxdiBackend(platform)
