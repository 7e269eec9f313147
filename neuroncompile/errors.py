"""Every error a user can meet, its exit code, and the hint that fixes it.

    NeuronCompileError            1   (itself: a bug; a report file is written)
    ├── UsageError                2   what the command line cannot mean
    ├── CacheMissError            3   --check or --require-cached, and nothing is there
    ├── ModelError                4   the model cannot be had or read
    │   ├── ModelNotFoundError        no such repository, revision, directory or file
    │   ├── GatedModelError           exists, but this token may not read it
    │   ├── NetworkError              the hub cannot be reached or fails
    │   └── NotCachedError            offline, and not in the local cache
    ├── ConfigError               5   a refused value or combination
    │   └── ToolchainError            no toolchain, or another than asked for
    ├── CompileError              6   the compiler failed
    ├── StoreError                7   the store cannot be read or written
    │   └── CorruptArtifactError      bytes differ from their digest
    ├── TierError                 8   a remote tier
    ├── TrustError                9   unsigned or untrusted
    ├── RunError                 10   device or runtime
    │   └── PromptTooLongError        more tokens than were compiled for
    ├── RetryError               75   worth trying again unchanged
    └── InterruptedBuildError   130   Ctrl-C or SIGTERM

`hint` is one sentence with the command or field that fixes it. `details` are plain values
for `--json`; nothing secret goes there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

__all__ = [
    "CacheMissError",
    "CompileError",
    "ConfigError",
    "CorruptArtifactError",
    "GatedModelError",
    "InterruptedBuildError",
    "ModelError",
    "ModelNotFoundError",
    "NetworkError",
    "NeuronCompileError",
    "NotCachedError",
    "PromptTooLongError",
    "RetryError",
    "RunError",
    "StoreError",
    "TierError",
    "ToolchainError",
    "TrustError",
    "UsageError",
    "nearest",
]


class NeuronCompileError(Exception):
    """Base of all errors; `str(error)` is one line for a person."""

    exit_code = 1

    def __init__(
        self,
        message: str,
        *,
        hint: str | None = None,
        details: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(message)
        self.hint = hint
        self.details: dict[str, Any] = dict(details or {})

    def as_json(self) -> dict[str, Any]:
        """The `error` member of the `--json` document."""
        return {
            "type": type(self).__name__,
            "message": str(self),
            "hint": self.hint,
            "details": self.details,
        }


class UsageError(NeuronCompileError):
    exit_code = 2


class CacheMissError(NeuronCompileError):
    exit_code = 3


class ModelError(NeuronCompileError):
    exit_code = 4


class ModelNotFoundError(ModelError):
    pass


class GatedModelError(ModelError):
    pass


class NetworkError(ModelError):
    pass


class NotCachedError(ModelError):
    pass


class ConfigError(NeuronCompileError):
    """A refused value; `field`, `value` and `legal` are kept for `--json`."""

    exit_code = 5

    def __init__(
        self,
        message: str,
        *,
        field: str | None = None,
        value: Any = None,
        legal: Any = None,
        hint: str | None = None,
        details: Mapping[str, Any] | None = None,
    ) -> None:
        merged = dict(details or {})
        if field is not None:
            merged |= {"field": field, "value": value, "legal": legal}
        super().__init__(message, hint=hint, details=merged)
        self.field, self.value, self.legal = field, value, legal


class ToolchainError(ConfigError):
    pass


class CompileError(NeuronCompileError):
    exit_code = 6


class StoreError(NeuronCompileError):
    exit_code = 7


class CorruptArtifactError(StoreError):
    pass


class TierError(NeuronCompileError):
    exit_code = 8


class TrustError(NeuronCompileError):
    exit_code = 9


class RunError(NeuronCompileError):
    exit_code = 10


class PromptTooLongError(RunError):
    pass


class RetryError(NeuronCompileError):
    exit_code = 75


class InterruptedBuildError(NeuronCompileError):
    exit_code = 130


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The known name a typo most likely meant, or None when nothing is close."""
    import difflib  # only a mistake pays for it

    folded = {k.lower().replace("_", "").replace("-", ""): k for k in sorted(known)}
    wanted = name.lower().replace("_", "").replace("-", "")
    match = difflib.get_close_matches(wanted, folded, n=1, cutoff=0.6)
    return folded[match[0]] if match else None
