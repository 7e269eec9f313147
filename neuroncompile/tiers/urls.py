"""What a tier's URL may be.

`s3://bucket[/prefix]` and `file:///absolute/path`. A slash at the end means nothing: with and
without it the same objects are meant. Credentials do not belong into a URL, which ends up in
logs; one that has any is refused and not repeated.
"""

from __future__ import annotations

from typing import NamedTuple
from urllib.parse import unquote, urlsplit

from neuroncompile.errors import TierError, nearest
from neuroncompile.tiers.base import tier_error

__all__ = ["LEGAL", "Location", "parse_url"]

LEGAL = ("s3://BUCKET/PREFIX", "file:///PATH")
_SCHEMES = ("s3", "file")


class Location(NamedTuple):
    """Where a tier is: scheme, bucket (empty for `file`), prefix or absolute path, and a URL."""

    scheme: str
    bucket: str
    path: str
    url: str


def parse_url(text: str) -> Location:
    """The location that a URL names.

    Raises:
        TierError: another scheme, no bucket, a relative path, or something that is no part of
            a tier's URL.
    """
    scheme, separator, rest = text.strip().partition("://")
    scheme = scheme.lower()
    if not separator or scheme not in _SCHEMES:
        raise _wrong_scheme(text, scheme if separator else "")
    authority, _, tail = rest.partition("/")
    if "@" in authority:
        raise _bad(f"{scheme}://…", "credentials in the URL", "give them as AWS_* variables")
    parts = urlsplit(f"{scheme}://{rest}")
    shown = f"{scheme}://{rest}".split("?")[0].split("#")[0]
    if parts.query or parts.fragment or "?" in rest or "#" in rest:
        raise _bad(shown, "a query or fragment", "leave out what follows ? or #")
    segments = unquote(tail).rstrip("/").split("/") if tail.rstrip("/") else []
    if any(part in ("", ".", "..") for part in segments):
        raise _bad(shown, "an empty part, . or .. in its path", f"write it as {' or '.join(LEGAL)}")
    if scheme == "file":
        if authority not in ("", "localhost") or not segments:
            raise _bad(shown, "no absolute path", "a directory has three slashes: file:///PATH")
        path = "/" + "/".join(segments)
        return Location("file", "", path, f"file://{path}")
    if not authority:
        raise _bad(shown, "no bucket", "write it as s3://BUCKET/PREFIX")
    prefix = "/".join(segments)
    return Location("s3", authority, prefix, f"s3://{authority}" + (f"/{prefix}" if prefix else ""))


def _wrong_scheme(text: str, scheme: str) -> TierError:
    shown = f"{scheme}://…" if scheme else repr(text.rpartition("@")[2])
    near = nearest(scheme, _SCHEMES) if scheme else None
    hint = f"use {' or '.join(LEGAL)}"
    if near is not None:
        hint = f"did you mean {near}://? legal: {', '.join(LEGAL)}"
    return tier_error(shown, "not a tier that this version knows", "scheme", hint, legal=LEGAL)


def _bad(url: str, what: str, hint: str) -> TierError:
    return tier_error(url, f"the URL has {what}", "url", hint, legal=LEGAL)
