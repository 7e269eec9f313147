"""What went wrong at an object store, in words a person can act on.

The text of the client's errors holds the server's answer, and some answers repeat the access
key and what was signed. So nothing of it is shown but a status, an error code and a region.
"""

from __future__ import annotations

import re

from neuroncompile.errors import TierError
from neuroncompile.tiers.base import tier_error

__all__ = ["explained", "is_absent"]

_STATUS = re.compile(r"status code: (\d{3})|status: (\d{3})")
_CODE = re.compile(r"<Code>([A-Za-z0-9.]{1,64})</Code>")
_REGION = re.compile(r"<Region>([a-z0-9-]{1,32})</Region>|expecting '([a-z0-9-]{1,32})'")
_OS_ERROR = re.compile(r"\(os error (\d+)\)|code: (\d+),")
_BAD_CREDENTIALS = frozenset(
    {
        "InvalidAccessKeyId",
        "SignatureDoesNotMatch",
        "ExpiredToken",
        "InvalidToken",
        "TokenRefreshRequired",
        "RequestExpired",
        "RequestTimeTooSkewed",
        "AccountProblem",
    }
)
_EXPORT = "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY (and AWS_SESSION_TOKEN), for instance "
_EXPORT += 'with `eval "$(aws configure export-credentials --format env)"`'


def is_absent(error: Exception) -> bool:
    """Whether an error says that this object is not there, and nothing worse."""
    return isinstance(error, FileNotFoundError) and _code(str(error)) != "NoSuchBucket"


def explained(url: str, doing: str, error: Exception) -> TierError:
    """A failed request as a `TierError`.

    Args:
        url: of the tier.
        doing: what was tried, as in "cannot read blob 1234".
    """
    text = str(error)
    what, failure, hint = _file_reason(text) if url.startswith("file:") else _reason(text)
    return tier_error(url, f"{doing}: {what}", failure, hint)


def _reason(text: str) -> tuple[str, str, str]:
    """What it is, its class, and how to put it right."""
    if "169.254." in text:  # where instances and containers ask for credentials
        return "no credentials were found", "credentials", _EXPORT
    status, code = _status(text), _code(text)
    if not status:
        return _no_answer(text.lower())
    said = f"HTTP {status} {code}".rstrip()
    if code == "NoSuchBucket":
        return "the bucket does not exist", "missing", "create the bucket, or correct --tier"
    if code in ("PermanentRedirect", "AuthorizationHeaderMalformed"):
        return _wrong_region(_REGION.search(text))
    if code in _BAD_CREDENTIALS:
        return f"the credentials are refused ({code})", "credentials", _EXPORT
    if status in ("401", "403"):
        hint = "allow s3:GetObject, and s3:PutObject for --push, on the tier's prefix"
        return f"permission denied ({said})", "forbidden", hint
    if status[0] == "5" or status == "429" or code in ("SlowDown", "RequestTimeout"):
        return f"the server failed ({said})", "server", "try again later"
    return f"the server refused ({said})", "other", "check AWS_ENDPOINT_URL and --tier"


def _wrong_region(match: re.Match[str] | None) -> tuple[str, str, str]:
    region = next(filter(None, match.groups()), "") if match else ""
    named = f" ({region})" if region else ""
    hint = f"set AWS_REGION={region}" if region else "set AWS_REGION to that of the bucket"
    return f"the bucket is in another region{named}", "region", hint


def _no_answer(text: str) -> tuple[str, str, str]:
    if "redirect without location" in text:
        return _wrong_region(None)
    if "kind: timeout" in text or "timedout" in text or "timed out" in text:
        return "no answer in time", "timeout", "check the network, or try again later"
    if "dns error" in text:
        return "its host name is not known", "unreachable", _ENDPOINT
    if "kind: connect," in text:
        return "it cannot be reached", "unreachable", _ENDPOINT
    if "http error" in text or "reqwest" in text or "hyper" in text:
        return "the connection broke off", "interrupted", "try again"
    if "credential" in text:
        return "no credentials were found", "credentials", _EXPORT
    return "the answer makes no sense", "other", _ENDPOINT


_ENDPOINT = "check AWS_ENDPOINT_URL, AWS_REGION and the network"


def _file_reason(text: str) -> tuple[str, str, str]:
    match = _OS_ERROR.search(text)
    number = int(next(filter(None, match.groups()))) if match else 0
    return {
        2: ("the directory does not exist", "missing", "make or mount it, or correct --tier"),
        1: ("permission denied", "forbidden", "give this user access to the directory"),
        13: ("permission denied", "forbidden", "give this user access to the directory"),
        28: ("no space left", "full", "free space there"),
        30: ("read-only file system", "forbidden", "mount it writable, or leave --push out"),
        122: ("disk quota exceeded", "full", "free space there"),
    }.get(number, ("the file system failed", "other", "check the file system of the tier"))


def _status(text: str) -> str:
    match = _STATUS.search(text)
    return next(filter(None, match.groups()), "") if match else ""


def _code(text: str) -> str:
    match = _CODE.search(text)
    return match.group(1) if match else ""
