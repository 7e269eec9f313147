"""Programs for Neuron: their graphs by name, and the interpreter that compiles them."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import Any

from neuroncompile.backends.base import Graph
from neuroncompile.errors import ToolchainError

__all__ = ["NxdiBackend"]


class NxdiBackend:
    """NxD Inference; see `backends.base.Backend` for the methods.

    Args:
        platform: "trn1", "trn1n", "inf2", "trn2" or "trn3".
    """

    name = "nxdi"
    optlevels: tuple[str, ...] = ("1", "2", "3")
    default_optlevel: str | None = None

    def __init__(self, platform: str) -> None:
        self.platform = platform

    def identity(self, python: str | None = None) -> dict[str, str]:
        if python is not None:
            from neuroncompile.backends.nxdi.process import identity_of

            return identity_of(self.interpreter(python))
        import importlib.util

        if importlib.util.find_spec("neuronxcc") is None:  # most hosts; asking further is slow
            return {}
        from neuroncompile.backends.nxdi.worker import identity

        return identity()

    def check(self, neuron: Mapping[str, Any], model: Mapping[str, Any]) -> None:
        """What NxDI refuses is in `config.checks`."""

    def preflight(self, python: str | None = None) -> None:
        self.interpreter(python)

    def interpreter(self, python: str | None) -> str:
        """The interpreter that holds the toolchain: the one named, else this one.

        Raises:
            ToolchainError: none is named and this one has no neuronx-cc, or it cannot be run.
        """
        if python is None:
            if self.identity():
                return sys.executable
            raise ToolchainError(
                f"compiling for {self.platform} takes an interpreter with the Neuron SDK, and "
                "none is named",
                field="toolchain.python",
                value=None,
                legal="path of a Python that has neuronx-cc and NxD Inference",
                hint="set NEURONCOMPILE_NEURON_PYTHON=/path/to/bin/python, or name a toolchain "
                "file with `python = …`; --dry-run and --check need neither",
            )
        if not os.access(python, os.X_OK) or os.path.isdir(python):
            raise ToolchainError(
                f"the toolchain's interpreter {python} cannot be run",
                field="toolchain.python",
                value=python,
                legal="path of a Python that has neuronx-cc and NxD Inference",
                hint="correct NEURONCOMPILE_NEURON_PYTHON or the toolchain file",
            )
        return python

    def graphs(self, spec: Mapping[str, Any]) -> list[Graph]:
        """One graph a submodel and bucket; none where NxDI pairs lengths itself.

        Submodels as in NxDI 0.9's models/model_base.py: speculation takes the place of token
        generation.
        """
        neuron = spec["neuron"]
        token = "token_generation_model"
        if neuron.get("is_medusa"):
            token = "medusa_speculation_model"
        elif neuron.get("enable_fused_speculation"):
            token = "fused_speculation_model"
        elif neuron.get("speculation_length"):
            token = "speculation_model"
        return [
            Graph(
                tag, "whole", batch, bucket, neuron["seq_len"], {}, "", f"{tag} b{batch} {bucket}"
            )
            for tag, batch, buckets in (
                (
                    "context_encoding_model",
                    neuron.get("ctx_batch_size", 1),
                    neuron.get("context_encoding_buckets"),
                ),
                (
                    token,
                    neuron.get("tkg_batch_size", neuron["batch_size"]),
                    neuron.get("token_generation_buckets"),
                ),
            )
            for bucket in buckets or ()
        ]
