"""Tiers: places that many hosts share, to which artifacts are pushed and from which pulled.

A tier holds the same tree as a store. Trust is not in it: whoever pulls checks the manifest
against the pointer, the spec against the key and every blob against its digest, so a broken,
half-pushed or misplaced artifact is never used. As in a store, whoever can write a tier can
publish anything under any spec.

    base       what a tier can do
    memory     in this process, for tests
    objects    s3:// and file://
    ranges     parts of a blob that are fetched ahead
    urls       what a URL may be
    explain    an object store's errors in words
    partial    blobs on their way in
    transfer   find, pull, push
"""

from __future__ import annotations

from neuroncompile.tiers.base import BlobNotFoundError, Tier, failure_class
from neuroncompile.tiers.memory import MemoryTier
from neuroncompile.tiers.transfer import Pulled, Pushed, Remote, find, lacking, pull, push
from neuroncompile.tiers.urls import Location, parse_url

__all__ = [
    "BlobNotFoundError",
    "Location",
    "MemoryTier",
    "Pulled",
    "Pushed",
    "Remote",
    "Tier",
    "failure_class",
    "find",
    "lacking",
    "open_tier",
    "parse_url",
    "pull",
    "push",
]


def open_tier(url: str, *, timeout: float | None = None, create: bool = False) -> Tier:
    """The tier of a URL: `s3://BUCKET/PREFIX` or `file:///PATH`; no request is made yet.

    An S3 tier reads the usual variables: AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY,
    AWS_SESSION_TOKEN, AWS_REGION, AWS_ENDPOINT_URL (also plain http), AWS_SKIP_SIGNATURE and
    those of instance and web identity roles.

    Args:
        timeout: seconds without a byte before a request is given up.
        create: make a directory tier's directory if it is not there.

    Raises:
        TierError: not a tier's URL, or it cannot be opened.
    """
    from neuroncompile.tiers.objects import TIMEOUT, ObjectTier

    return ObjectTier(parse_url(url), timeout=timeout or TIMEOUT, create=create)
