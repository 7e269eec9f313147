"""Specs, keys, and why keys differ.

A key proves what a program is: it is the SHA-256 of the canonical bytes of everything that can
change it. Nothing of the machine enters, weights do not, and unknown fields do.
"""

from neuroncompile.keys.canonical import canonical, canonical_bytes, canonical_number, digest_of
from neuroncompile.keys.spec import (
    compile_spec,
    compiler_flags,
    graph_spec,
    pack_spec,
    shard_spec,
    spec_key,
)

__all__ = [
    "canonical",
    "canonical_bytes",
    "canonical_number",
    "compile_spec",
    "compiler_flags",
    "digest_of",
    "graph_spec",
    "pack_spec",
    "shard_spec",
    "spec_key",
]
