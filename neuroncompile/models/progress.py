"""How a long read tells where it is."""

from __future__ import annotations

from collections.abc import Callable

__all__ = ["Progress"]

Progress = Callable[[str, int, "int | None"], None]
"""(what is being done, bytes done, total bytes or None when unknown)."""
