"""The contract between the decoding loop and whatever runs the graphs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["Engine"]


class Engine(Protocol):
    """One loaded program with its weights and its KV cache.

    A *slot* is a row of the KV cache, `0 … batch_size - 1`. A sequence keeps its slot from
    context encoding to its last token; the next sequence in a slot overwrites it. Backends
    keep one more slot, the scratch slot, for rows that only fill up a batch.

    Attributes:
        name: for people and JSON, e.g. "cpu".
        batch_size: rows of a token-generation step.
        seq_len: tokens a slot can hold, prompt and answer together.
        max_context_length: longest prompt context encoding takes.
        vocab_size: width of the logits.
    """

    name: str
    batch_size: int
    seq_len: int
    max_context_length: int
    vocab_size: int

    def forward(
        self,
        input_ids: NDArray[np.int64],
        position_ids: NDArray[np.int64],
        seq_ids: NDArray[np.int64],
        sampling_params: Any = None,
    ) -> NDArray[np.float32]:
        """Run one step.

        Context encoding when every row starts at position 0, else token generation (T = 1),
        which sees the row's earlier positions and the token itself, nothing else.

        Args:
            input_ids: token ids, int64 [B, T], padded on the right.
            position_ids: position of each token in its sequence, int64 [B, T]; −1 is padding.
            seq_ids: slot of each row, int64 [B], all different; any order.
            sampling_params: for engines that sample in the graph; others ignore it.

        Returns:
            Logits of each row's last real token, float32 [B, vocab_size], in the order of the
            rows as given.

        Raises:
            PromptTooLongError: a row has more tokens than context encoding was compiled for.
        """
        ...

    def close(self) -> None:
        """Release memory; the engine is not used again."""
        ...
