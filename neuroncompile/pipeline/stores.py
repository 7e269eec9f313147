"""The store of a command: the one that is written, with the layers below it."""

from __future__ import annotations

from neuroncompile.output import Output
from neuroncompile.settings import Settings
from neuroncompile.store import Store

__all__ = ["open_store"]


def open_store(settings: Settings, output: Output | None = None) -> Store:
    """The store of these settings; what is broken in it is said to `output`."""
    warn = None if output is None else output.warn
    return Store(settings.store, layers=settings.layers, on_warning=warn)
