from __future__ import annotations

import pytest

from neuroncompile.config.heads import shard_heads


@pytest.mark.parametrize(
    ("query", "key_value", "tp", "padded", "sharded", "note"),
    [
        (9, 3, 1, 9, 3, None),
        (9, 3, 2, 10, 10, "attention heads kv 3→10, q 9→10 at tp=2"),
        (9, 3, 3, 9, 3, None),
        (32, 8, 1, 32, 8, None),
        (32, 8, 2, 32, 8, None),
        (32, 8, 4, 32, 8, None),
        (32, 8, 8, 32, 8, None),
        (32, 8, 16, 32, 16, "attention heads kv 8→16 at tp=16"),
        (64, 8, 64, 64, 64, "attention heads kv 8→64 at tp=64"),
        (56, 8, 32, 64, 32, "attention heads kv 8→32, q 56→64 at tp=32"),
        (24, 6, 4, 24, 24, "attention heads kv 6→24 at tp=4"),
        (12, 12, 8, 16, 16, "attention heads kv 12→16, q 12→16 at tp=8"),
        (71, 1, 8, 72, 8, "attention heads kv 1→8, q 71→72 at tp=8"),
    ],
)
def test_counts_are_nxdis(
    query: int, key_value: int, tp: int, padded: int, sharded: int, note: str | None
) -> None:
    heads = shard_heads(query, key_value, tp)
    assert (heads.padded_query, heads.sharded_key_value) == (padded, sharded)
    assert heads.is_padded == (padded != query)
    assert heads.note == note
