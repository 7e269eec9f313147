"""How an artifact came to be: kept beside it, never in its key."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from neuroncompile import __version__
from neuroncompile.pipeline.plan import Plan

__all__ = ["provenance"]


def provenance(plan: Plan, compiled: Sequence[str], seconds: float, **more: Any) -> dict[str, Any]:
    """The record of one build: who made it from what, and how long it took."""
    return {
        "neuroncompile": __version__,
        "model": plan.model.name,
        "revision": plan.model.revision,
        **plan.companions(),
        "compiled": list(compiled),
        "seconds": round(seconds, 3),
        "finished": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        **more,
    }
