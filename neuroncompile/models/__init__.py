"""Models: from a reference to pinned files, and what their configs mean."""

from neuroncompile.models.facts import from_facts
from neuroncompile.models.pinned import PinnedModel, WeightFile
from neuroncompile.models.progress import Progress
from neuroncompile.models.reference import Reference, is_model_reference, parse_reference
from neuroncompile.models.resolve import cached, fetch_weights, resolve, source_digests

__all__ = [
    "PinnedModel",
    "Progress",
    "Reference",
    "WeightFile",
    "cached",
    "fetch_weights",
    "from_facts",
    "is_model_reference",
    "parse_reference",
    "resolve",
    "source_digests",
]
