"""Tables in 80 columns."""

from __future__ import annotations

from neuroncompile.pipeline.columns import fitted


def width(rows: list[tuple[str, ...]]) -> int:
    return sum(max(len(r[i]) for r in rows) for i in range(len(rows[0]))) + 2 * (len(rows[0]) - 1)


def test_what_fits_is_left_alone() -> None:
    rows = [("a", "1", "default"), ("b", "2", "flag -O")]
    assert fitted(("NAME", "VALUE", "ORIGIN"), rows) == rows


def test_a_long_value_goes_on_below() -> None:
    rows = fitted(("NAME", "VALUE"), [("buckets", "128,256,512,1024")], width=20)
    assert rows == [("buckets", "128,256,"), ("", "512,1024")]


def test_words_are_parted_at_blanks_and_nothing_is_lost() -> None:
    origin = "default, derived from max_context_length"
    rows = fitted(("NAME", "ORIGIN"), [("context_encoding_buckets", origin)], width=50)
    assert width(rows) <= 50
    assert " ".join(row[1] for row in rows) == origin
    assert rows[0][0] == "context_encoding_buckets"


def test_a_word_without_an_end_is_parted_anyway() -> None:
    rows = fitted(("NAME", "VALUE"), [("n" * 100, "v" * 100)])
    assert width(rows) <= 80
    assert "".join(row[0] for row in rows) == "n" * 100
    assert "".join(row[1] for row in rows) == "v" * 100
