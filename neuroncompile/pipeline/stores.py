"""The store of a command: the one that is written, with the layers below it."""

from __future__ import annotations

from neuroncompile.output import Output
from neuroncompile.settings import Settings
from neuroncompile.store import Store

__all__ = ["open_store", "say_if_absent"]


def open_store(settings: Settings, output: Output | None = None) -> Store:
    """The store of these settings; what is broken in it is said to `output`."""
    warn = None if output is None else output.warn
    return Store(settings.store, layers=settings.layers, on_warning=warn)


def say_if_absent(settings: Settings, output: Output) -> None:
    """An empty answer may come from a misspelt place; say which place it was."""
    if not (settings.store / "v1").is_dir():
        output.note(f"there is no store in {settings.store} ({settings.store_origin}) yet")
