"""Packages against the table of releases."""

from __future__ import annotations

import itertools

import pytest

from neuroncompile.config.release_match import SYSTEM, match_release, older
from neuroncompile.config.releases import RELEASES, sdk_packages


@pytest.mark.parametrize("release", RELEASES)
def test_every_release_is_itself(release: str) -> None:
    found = match_release(sdk_packages(release))
    assert (found.odd, found.missing) == ((), ())
    assert RELEASES[found.release] == RELEASES[release]


def test_the_table_of_drivers_has_every_release_in_order() -> None:
    assert list(SYSTEM) == list(RELEASES)
    drivers = [driver for driver, _ in SYSTEM.values()]
    assert not any(older(a, b) for a, b in itertools.pairwise(drivers))


def test_what_belongs_to_another_release() -> None:
    packages = {**sdk_packages("2.28.1"), "neuronx-cc": "2.24.8799.0+6f62ff7c"}
    found = match_release(packages)
    assert found.release == "2.28.1"
    assert found.odd == (("neuronx-cc", "2.24.8799.0", ("2.29.1",)),)


def test_what_belongs_to_none_and_what_is_missing() -> None:
    packages = {**sdk_packages("2.28.1"), "libneuronxla": "9.9"}
    del packages["nki"]
    found = match_release(packages)
    assert found.odd == (("libneuronxla", "9.9", ()),)
    assert found.missing == ("nki",)
    assert match_release({"torch": "2.9.0"}) == ("", (), ())
    assert match_release({}) == ("", (), ())


def test_builds_and_other_packages_do_not_matter() -> None:
    packages = {**sdk_packages("2.29.1"), "numpy": "1", "torch": "2.9.1+cpu"}
    packages["neuronx-cc"] += "+6f62ff7c"
    assert match_release(packages) == ("2.29.1", (), ())


@pytest.mark.parametrize(
    ("version", "than", "answer"),
    [
        ("2.9.0", "2.27.4.0", True),
        ("2.27.4.0", "2.27.4.0", False),
        ("2.28", "2.27.4.0", False),
        ("2.27", "2.27.4.0", True),
        ("", "2.27", False),
        ("unknown", "2.27", False),
        ("2.27", "", False),
    ],
)
def test_older(version: str, than: str, answer: bool) -> None:
    assert older(version, than) is answer
