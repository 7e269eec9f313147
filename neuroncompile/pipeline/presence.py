"""Where a program is before anything is moved or compiled: here, in a tier, or nowhere."""

from __future__ import annotations

from typing import NamedTuple

from neuroncompile.output import Output
from neuroncompile.pipeline.plan import Plan
from neuroncompile.pipeline.sharing import Tiers
from neuroncompile.pipeline.stores import open_store
from neuroncompile.settings import Settings
from neuroncompile.store import Artifact

__all__ = ["Presence", "presence_of"]


class Presence(NamedTuple):
    """What of a plan is there already.

    Attributes:
        artifact: the program, if the store has it.
        tier: URL of the nearest tier that has it, if the store does not.
        packed: whether its packed weights are here or in a tier; None when it needs none, or
            when the model is known by its facts only.
    """

    artifact: Artifact | None
    tier: str | None
    packed: bool | None

    @property
    def program(self) -> bool:
        """The program is here or in a tier."""
        return self.artifact is not None or self.tier is not None

    @property
    def warm(self) -> bool:
        """Nothing would have to be compiled or packed."""
        return self.program and self.packed is not False


def presence_of(
    plan: Plan, settings: Settings, output: Output, tiers: Tiers, *, touch: bool = False
) -> Presence:
    """Look for the program and its packed weights here and in the tiers; nothing is moved.

    A tier that fails is a warning; whoever needs to know asks `Tiers.raise_failure`.

    Args:
        touch: record the use of what is here, so that the collector keeps it.
    """
    store = open_store(settings, output)
    artifact = store.lookup("compile", plan.key, touch=touch)
    tier = None
    if artifact is None and tiers:
        tier = tiers.having(store, "compile", plan.key)
    packed = None
    if plan.model.weights_format == "gguf":
        from neuroncompile.keys import spec_key
        from neuroncompile.pipeline.weights import find_packed

        spec, pack = find_packed(plan, store, settings)
        packed = pack is not None or bool(tiers and tiers.having(store, "pack", spec_key(spec)))
    return Presence(artifact, tier, packed)
