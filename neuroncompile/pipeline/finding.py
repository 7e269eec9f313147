"""What a check of the doctor's sees, and what it says."""

from __future__ import annotations

import shutil
from typing import NamedTuple

from neuroncompile.hardware.targets import Target
from neuroncompile.settings import Settings

__all__ = ["Finding", "Patient", "good", "install"]


class Finding(NamedTuple):
    """One thing that was looked at.

    Attributes:
        subject: what.
        level: "ok", "warning" or "problem".
        what: in one line.
        why: why it matters; "" when it is well.
        fix: the command or setting that mends it; "" when it is well.
        stops: what a problem makes impossible: "build", "run", "both" or "".
    """

    subject: str
    level: str
    what: str
    why: str = ""
    fix: str = ""
    stops: str = ""


class Patient(NamedTuple):
    """What is asked about: a target, and the toolchain that was named for it."""

    target: Target
    toolchain: str | None
    settings: Settings


def good(subject: str, what: str) -> Finding:
    """All is well."""
    return Finding(subject, "ok", what)


def install(packages: str) -> str:
    """The command that installs packages of the system, named alike in both worlds."""
    return f"{'dnf' if shutil.which('dnf') else 'apt-get'} install {packages}"
