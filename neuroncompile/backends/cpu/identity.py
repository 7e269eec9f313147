"""What compiles on cpu, by version: torch, and our own modelling code.

Read on every build, hits included, so neither torch nor importlib.metadata is imported.
"""

from __future__ import annotations

import os
import sys
from hashlib import sha256

from neuroncompile.errors import ToolchainError

__all__ = ["identity", "torch_directory", "torch_version"]

GRAPH_CODE = ("graphs.py", "lowering.py")
"""The sources that decide a graph's bytes; the rest of this package only moves them."""


def identity() -> dict[str, str]:
    """`{"torch": version, "graph_code": first 12 hex digits of our sources' SHA-256}`.

    Raises:
        ToolchainError: torch is not installed.
    """
    return {"torch": torch_version(), "graph_code": _graph_code()}


def torch_directory() -> str:
    """The installed torch package's directory.

    Raises:
        ToolchainError: torch is not installed.
    """
    for entry in sys.path:
        directory = os.path.join(entry or os.curdir, "torch")
        if os.path.isfile(os.path.join(directory, "__init__.py")):
            return directory
    raise ToolchainError(
        "torch is not installed, so nothing can be compiled for cpu",
        field="toolchain",
        value=None,
        legal="torch 2.13.0",
        hint="pip install 'neuroncompile[cpu]'",
    )


def torch_version() -> str:
    """The installed torch's version, local part included ("2.13.0+cpu").

    Raises:
        ToolchainError: torch is not installed, or its metadata is missing.
    """
    directory = torch_directory()
    for name in os.listdir(os.path.dirname(directory)):
        if name.startswith("torch-") and name.endswith(".dist-info"):
            return name.removeprefix("torch-").removesuffix(".dist-info")
    raise ToolchainError(
        f"torch in {directory} has no version: its dist-info directory is missing",
        field="toolchain",
        hint="pip install --force-reinstall 'neuroncompile[cpu]'",
    )


def _graph_code() -> str:
    digest = sha256()
    for name in GRAPH_CODE:
        with open(os.path.join(os.path.dirname(__file__), name), "rb") as source:
            digest.update(source.read())
    return digest.hexdigest()[:12]
