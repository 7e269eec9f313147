"""Neuron SDK releases that hold NxD Inference, as exact versions.

From the release manifest of aws-neuron-sdk (src/helperscripts/n2-manifest.json, 2.32.0). Two
choices are made where a release ships several: torch-neuronx of the newest torch (NxDI 0.8 and
later need 2.9), and libneuronxla 2.x, which belongs to that torch-neuronx. `neuronx-cc` carries
a `+hash` only where it is installed; the manifest does not know it.

torch and torch-xla follow torch-neuronx, and transformers follows NxDI; the manifest pins none
of them, so they are windows ("2.9.*").
"""

from __future__ import annotations

from collections.abc import Mapping

from neuroncompile.errors import ToolchainError, nearest

__all__ = ["RELEASES", "sdk_packages"]

_COLUMNS = (
    "neuronx-cc",
    "neuronx-distributed-inference",
    "neuronx-distributed",
    "torch-neuronx",
    "libneuronxla",
    "nki",
)

RELEASES = {
    "2.31.1": "2.26.6360.0 0.10.18399 0.19.28492 2.9.0.2.15.32035 2.2.17544.0 0.5.0",
    "2.31.0": "2.26.6360.0 0.10.18399 0.19.28492 2.9.0.2.15.32035 2.2.17544.0 0.5.0",
    "2.30.0": "2.25.3371.0 0.10.17970 0.19.28093 2.9.0.2.14.27725 2.2.16974.0 0.4.0",
    "2.29.1": "2.24.8799.0 0.9.17334 0.18.27753 2.9.0.2.13.26312 2.2.16408.0 0.3.0",
    "2.29.0": "2.24.5133.0 0.9.17334 0.18.27753 2.9.0.2.13.24727 2.2.16408.0 0.3.0",
    "2.28.1": "2.23.6484.0 0.8.16251 0.17.26814 2.9.0.2.12.22436 2.2.15515.0 0.2.0",
    "2.28.0": "2.23.6484.0 0.8.16251 0.17.26814 2.9.0.2.12.22436 2.2.15515.0 0.2.0",
    "2.27.1": "2.22.12471.0 0.7.15063 0.16.25997 2.9.0.2.11.19912 2.2.14584.0 0.1.0",
    "2.27.0": "2.22.12471.0 0.7.14366 0.16.25997 2.9.0.2.11.19912 2.2.14584.0 0.1.0",
    "2.26.1": "2.21.33363.0 0.6.10598 0.15.22404 2.8.0.2.10.16998 2.2.12677.0",
    "2.26.0": "2.21.18209.0 0.6.10598 0.15.22404 2.8.0.2.10.13553 2.2.12677.0",
    "2.25.0": "2.20.9961.0 0.5.9230 0.14.18461 2.7.0.2.9.9357 2.2.8201.0",
    "2.24.1": "2.19.8089.0 0.4.7422 0.13.14393 2.7.0.2.8.6734 2.2.4410.0",
    "2.24.0": "2.19.8089.0 0.4.7422 0.13.14393 2.7.0.2.8.6734 2.2.4410.0",
    "2.23.0": "2.18.121.0 0.3.5591 0.12.12111 2.6.0.2.7.5413 2.2.3493.0",
    "2.22.0": "2.17.194.0 0.2.0 0.11.0 2.5.1.2.6.0 2.2.1630.0",
    "2.21.1": "2.16.372.0 0.1.1 0.10.1 2.5.1.2.4.0 2.1.714.0",
    "2.21.0": "2.16.345.0 0.1.0 0.10.0 2.5.1.2.4.0 2.1.681.0",
}
"""SDK → versions in the order of `_COLUMNS`, newest first; 2.20 and 2.32 ship no NxDI."""

_TRANSFORMERS = {
    "0.1": "4.45.*",
    "0.2": "4.48.*",
    "0.3": "4.48.*",
    "0.4": "4.51.*",
    "0.5": "4.51.*",
    "0.6": "4.51.*",
    "0.7": "4.56.*",
    "0.8": "4.57.*",
    "0.9": "4.57.*",
    # 0.10 has no public source to read its pin from; the worker's interpreter will say.
}


def sdk_packages(sdk: str, overrides: Mapping[str, str] | None = None) -> dict[str, str]:
    """Package → version of a release: "2.28" is its latest patch, "2.28.0" that one.

    Args:
        overrides: versions to put in the place of the release's; torch and torch-xla follow an
            overridden torch-neuronx.

    Raises:
        ToolchainError: no such release, or one without NxDI, with the known ones.
    """
    release = next((name for name in RELEASES if name == sdk or name.startswith(f"{sdk}.")), None)
    if release is None or sdk.count(".") < 1:
        near = nearest(sdk, RELEASES)
        raise ToolchainError(
            f"no Neuron SDK {sdk!r} with NxD Inference is known; known: {', '.join(RELEASES)}",
            field="toolchain.sdk",
            value=sdk,
            legal=list(RELEASES),
            hint=f"did you mean {near}?" if near else 'for example sdk = "2.28"',
        )
    # nki stands last: releases before 2.27 have none of it.
    packages = dict(zip(_COLUMNS, RELEASES[release].split(), strict=False))
    packages |= overrides or {}
    torch = ".".join(packages["torch-neuronx"].split(".")[:2]) + ".*"
    packages.setdefault("torch", torch)
    packages.setdefault("torch-xla", torch)
    nxdi = ".".join(packages["neuronx-distributed-inference"].split(".")[:2])
    if nxdi in _TRANSFORMERS:
        packages.setdefault("transformers", _TRANSFORMERS[nxdi])
    return packages
