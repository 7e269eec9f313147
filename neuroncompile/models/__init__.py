"""Models: from a reference to pinned files, and what their configs mean."""

from neuroncompile.models.facts import from_facts
from neuroncompile.models.pinned import PinnedModel, WeightFile
from neuroncompile.models.progress import Progress
from neuroncompile.models.reference import Reference, is_model_reference, parse_reference

__all__ = [
    "PinnedModel",
    "Progress",
    "Reference",
    "WeightFile",
    "from_facts",
    "is_model_reference",
    "parse_reference",
]
