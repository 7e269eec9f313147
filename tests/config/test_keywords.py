from __future__ import annotations

import pytest

from neuroncompile.config.keywords import ABOUT, MEANINGS, REACHES, meaning
from neuroncompile.config.schema import CLASSES

ROWS = [(owner, row[0], row[3]) for owner, rows in CLASSES.items() for row in rows]


@pytest.mark.parametrize(("owner", "name", "reaches"), ROWS, ids=lambda part: str(part))
def test_every_row_of_the_schema_has_a_meaning(owner: str, name: str, reaches: str) -> None:
    line = meaning(owner, name)
    assert 8 <= len(line) <= 88
    assert "\n" not in line
    assert not line.endswith(".")
    assert reaches in REACHES


def test_every_class_is_described() -> None:
    assert set(ABOUT) == set(CLASSES)


def test_no_meaning_outlives_its_keyword() -> None:
    for owner, lines in MEANINGS.items():
        assert list(lines) == [row[0] for row in CLASSES[owner]]


def test_no_meaning_merely_repeats_the_name() -> None:
    for lines in MEANINGS.values():
        for name, line in lines.items():
            assert line.lower() != name.replace("_", " ")


def test_an_unknown_keyword_has_none() -> None:
    with pytest.raises(KeyError):
        meaning("NeuronConfig", "seqlen")
