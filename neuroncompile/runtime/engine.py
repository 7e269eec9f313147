"""The contract between the decoding loop and whatever runs the graphs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["Engine", "Limits"]


class Limits(Protocol):
    """What a program was compiled for; known before it is loaded."""

    @property
    def seq_len(self) -> int: ...
    @property
    def max_context_length(self) -> int: ...
    @property
    def vocab_size(self) -> int: ...


class Engine(Protocol):
    """One loaded program with its weights and its KV cache.

    A *slot* is a row of the KV cache, `0 … batch_size − 1`. A sequence keeps its slot from
    context encoding to its last token; the next sequence's context encoding overwrites it, so
    nothing has to be freed. A program compiled for more rows than a call has fills up with rows
    that write to the *scratch slot*, one more than the caller can name.

    A token is in the cache once it was fed. After a prompt of P tokens the first new token comes
    from the prompt's logits and is fed at position P; a slot therefore gives at most
    seq_len − P tokens, the last of which is never fed.

    Attributes:
        name: for people and JSON, e.g. "cpu".
        batch_size: slots, and most rows of a step.
        seq_len: tokens a slot can hold, prompt and answer together.
        max_context_length: longest prompt that context encoding takes.
        vocab_size: width of the logits; ids are below it.
        samples: tokens are chosen in the graph; `forward` then returns them, int64 [B]. An engine
            without the attribute does not.
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
    ) -> NDArray[Any]:
        """Run one step of 1 … batch_size rows.

        Context encoding when every row starts at position 0: rows see their own tokens alone,
        and the engine pads them to its smallest bucket that holds them. Otherwise token
        generation with T = 1: a row sees its slot's earlier positions and the token itself. The
        two are not mixed in one call. A row's logits do not depend on the other rows.

        Args:
            input_ids: token ids, int64 [B, T], padded on the right with any id.
            position_ids: position of each token in its sequence, int64 [B, T], counting up by 1
                in a row; −1 is padding.
            seq_ids: slot of each row, int64 [B], all different, in any order.
            sampling_params: float32 [B, 3] of top_k, top_p and temperature, for engines that
                sample in the graph; others ignore it.

        Returns:
            Logits of each row's last real token, float32 [B, vocab_size], in the order of the
            rows as given. They may be overwritten by the next call.

        Raises:
            PromptTooLongError: a row has more tokens than context encoding was compiled for.
            RunError: shapes, slots or positions that the program cannot take, or the device or
                program fails.
        """
        ...

    def close(self) -> None:
        """Release memory; the engine is not used again. Closing twice is harmless."""
        ...
