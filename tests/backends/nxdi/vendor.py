"""The vendor's real packages, where the developer has them.

NEURONCOMPILE_NXDI_SOURCES: directories with NxD Inference's and NxD's sources and with a module
`closed_packages` whose `install()` stands in for what is not public, separated as in PATH.
NEURONCOMPILE_NXDI_PYTHON: an interpreter with torch and transformers 4.57. With a whole SDK
installed in it, the first may be empty.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

SOURCES = os.environ.get("NEURONCOMPILE_NXDI_SOURCES")
PYTHON = os.environ.get("NEURONCOMPILE_NXDI_PYTHON")

needed = pytest.mark.skipif(
    SOURCES is None or PYTHON is None,
    reason="set NEURONCOMPILE_NXDI_SOURCES and NEURONCOMPILE_NXDI_PYTHON",
)

SITE = """
try:
    import closed_packages
except ImportError:
    pass
else:
    closed_packages.install()
"""


def environment(place: Path) -> dict[str, str]:
    """What puts them on a worker's path."""
    assert SOURCES is not None
    assert PYTHON is not None
    place.mkdir(parents=True, exist_ok=True)
    (place / "sitecustomize.py").write_text(SITE)
    return {
        "PATH": f"{Path(PYTHON).parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}",
        "HOME": str(place),
        "PYTHONPATH": os.pathsep.join([str(place), *filter(None, SOURCES.split(os.pathsep))]),
        "NEURON_PLATFORM_TARGET_OVERRIDE": "trn2",
        "NEURON_LOGICAL_NC_CONFIG": "2",
        "HF_HUB_OFFLINE": "1",
        "LC_ALL": "C.UTF-8",
        "MASTER_PORT": str(29500 + os.getpid() % 20000),
    }
