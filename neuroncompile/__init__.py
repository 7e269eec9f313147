"""Compile a language model for AWS Neuron once, prove what it is, run it anywhere.

    import neuroncompile

    built = neuroncompile.build("smollm2-135m")
    model = neuroncompile.load("smollm2-135m")
    print(model.generate("The capital of France is", max_new_tokens=8)[0].text)

`build` compiles or finds a program, `load` makes it ready to decode, `Store` is the
content-addressed store both use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from neuroncompile.pipeline.api import LoadedModel, build, load
    from neuroncompile.pipeline.build import Built
    from neuroncompile.store import Store

__version__ = "0.1.0"

__all__ = ["Built", "LoadedModel", "Store", "__version__", "build", "load"]

_HOMES = {
    "build": "neuroncompile.pipeline.api",
    "load": "neuroncompile.pipeline.api",
    "LoadedModel": "neuroncompile.pipeline.api",
    "Built": "neuroncompile.pipeline.build",
    "Store": "neuroncompile.store",
}


def __getattr__(name: str) -> Any:
    # Importing the package must stay cheap: the command line imports it on every start.
    if name not in _HOMES:
        raise AttributeError(f"module 'neuroncompile' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
