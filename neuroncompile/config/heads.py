"""What tensor parallelism does to attention heads (NxDI 0.9.0, modules/attention/gqa.py).

Each rank gets the same number of heads. Query heads are padded to a multiple of the degree.
Key-value heads that the degree does not divide are replicated to one a rank where the degree is
a multiple of them, and otherwise once for every query head, which is plain multi-head attention
and costs the cache the ratio of the two.
"""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["Heads", "shard_heads"]


class Heads(NamedTuple):
    """Head counts of the model and of the compiled program, over all ranks."""

    tp_degree: int
    query: int
    key_value: int
    padded_query: int
    sharded_key_value: int

    @property
    def is_padded(self) -> bool:
        """Whether heads of zeros were added, which cost compute on every step."""
        return self.padded_query != self.query

    @property
    def note(self) -> str | None:
        """One line when anything changes, else None."""
        changes = [
            f"{name} {before}→{after}"
            for name, before, after in (
                ("kv", self.key_value, self.sharded_key_value),
                ("q", self.query, self.padded_query),
            )
            if before != after
        ]
        return f"attention heads {', '.join(changes)} at tp={self.tp_degree}" if changes else None


def shard_heads(query: int, key_value: int, tp_degree: int) -> Heads:
    """Head counts as NxDI shards them."""
    padded = query + -query % tp_degree
    sharded = key_value
    if query == key_value:
        sharded = padded
    elif key_value % tp_degree:  # also when there are fewer of them than ranks
        sharded = tp_degree if tp_degree % key_value == 0 else padded
    return Heads(tp_degree, query, key_value, padded, sharded)
