"""Which release of the SDK a set of packages is, and which of them belong to another.

The vendor tests the packages of one release with each other. Driver and runtime are the
distribution's packages of the same release (release manifest of aws-neuron-sdk 2.32).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from neuroncompile.config.releases import RELEASES, sdk_packages

__all__ = ["SYSTEM", "Match", "match_release", "older"]

SYSTEM = {
    "2.31.1": ("2.29.0.0", "2.33.10.0"),
    "2.31.0": ("2.29.0.0", "2.33.10.0"),
    "2.30.0": ("2.28.0.0", "2.32.31.0"),
    "2.29.1": ("2.27.4.0", "2.31.24.0"),
    "2.29.0": ("2.27.4.0", "2.31.24.0"),
    "2.28.1": ("2.26.10.0", "2.30.51.0"),
    "2.28.0": ("2.26.5.0", "2.30.51.0"),
    "2.27.1": ("2.25.4.0", "2.29.40.0"),
    "2.27.0": ("2.25.4.0", "2.29.40.0"),
    "2.26.1": ("2.24.7.0", "2.28.23.0"),
    "2.26.0": ("2.24.7.0", "2.28.23.0"),
    "2.25.0": ("2.23.9.0", "2.27.23.0"),
    "2.24.1": ("2.22.2.0", "2.26.42.0"),
    "2.24.0": ("2.22.2.0", "2.26.42.0"),
    "2.23.0": ("2.21.37.0", "2.25.57.0"),
    "2.22.0": ("2.20.28.0", "2.24.53.0"),
    "2.21.1": ("2.19.64.0", "2.23.112.0"),
    "2.21.0": ("2.19.64.0", "2.23.110.0"),
}
"""SDK → aws-neuronx-dkms (the driver) and aws-neuronx-runtime-lib."""


class Match(NamedTuple):
    """What a set of packages is.

    Attributes:
        release: SDK that most of them belong to, "2.28.1"; "" where none does.
        odd: (package, version, the releases that have it) of those that do not.
        missing: packages of that release that are not there.
    """

    release: str
    odd: tuple[tuple[str, str, tuple[str, ...]], ...]
    missing: tuple[str, ...]


def match_release(packages: Mapping[str, str]) -> Match:
    """Compare versions with every release's; builds of one version (`+hash`) are alike."""
    best, most, expected = "", 0, dict[str, str]()
    for release in RELEASES:  # newest first: of two equal ones the newer counts
        versions = _pinned(release)
        number = sum(_base(packages.get(name)) == version for name, version in versions.items())
        if number > most:
            best, most, expected = release, number, versions
    if not best:
        return Match("", (), ())
    odd = tuple(
        (name, _base(packages[name]), _releases_with(name, _base(packages[name])))
        for name, version in expected.items()
        if name in packages and _base(packages[name]) != version
    )
    return Match(best, odd, tuple(name for name in expected if name not in packages))


def older(version: str, than: str) -> bool:
    """Whether a dotted version comes before another; False where either is none."""
    numbers = []
    for text in (version, than):
        parts = text.strip().split(".")
        if not all(part.isdecimal() for part in parts):
            return False
        numbers.append([int(part) for part in parts])
    return numbers[0] < numbers[1]


def _pinned(release: str) -> dict[str, str]:
    return {n: v for n, v in sdk_packages(release).items() if not v.endswith(".*")}


def _base(version: str | None) -> str:
    return (version or "").partition("+")[0]


def _releases_with(name: str, version: str) -> tuple[str, ...]:
    return tuple(release for release in RELEASES if _pinned(release).get(name) == version)
