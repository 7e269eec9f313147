"""An engine over a worker: the decoding loop's contract on the vendor's classes."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from neuroncompile.backends.nxdi.process import OrderFailed, OverLimit, Worker, WorkerEnded
from neuroncompile.errors import PromptTooLongError, RunError

__all__ = ["NxdiEngine"]


class NxdiEngine:
    """A program that a worker has loaded; see `runtime.engine.Engine`.

    Every per-row input is handed over in the order of the slots, as NxDI's cache expects, and
    the results come back in the order of the call.

    Args:
        worker: with nothing else to do.
        order: the worker's `load` order.
        name: for people, "trn2, cores 0-7".

    Attributes:
        samples: tokens are chosen in the graph, and `forward` returns them.

    Raises:
        RunError: it cannot be loaded.
    """

    def __init__(self, worker: Worker, order: Mapping[str, Any], name: str) -> None:
        self._worker = worker
        self.name = name
        try:
            limits, _ = worker.order({"op": "load", **order})
        except (OrderFailed, WorkerEnded, OverLimit) as error:
            worker.close()
            raise _failed("loading the program", error, worker) from None
        self.batch_size = int(limits["batch_size"])
        self.seq_len = int(limits["seq_len"])
        self.max_context_length = int(limits["max_context_length"])
        self.vocab_size = int(limits["vocab_size"])
        self.samples = bool(limits["samples"])
        self._closed = False

    def forward(
        self,
        input_ids: NDArray[np.int64],
        position_ids: NDArray[np.int64],
        seq_ids: NDArray[np.int64],
        sampling_params: Any = None,
    ) -> Any:
        """One step; see `runtime.engine.Engine.forward`.

        Args:
            sampling_params: float32 [B, 3] of top_k, top_p and temperature, where the program
                samples.

        Returns:
            Logits, float32 [B, vocab_size]; or tokens, int64 [B], where the program samples.
        """
        self._check(input_ids, position_ids, seq_ids)
        order = np.argsort(seq_ids, kind="stable")
        tensors = {
            "input_ids": np.ascontiguousarray(input_ids[order], np.int64),
            "position_ids": np.ascontiguousarray(position_ids[order], np.int64),
            "seq_ids": np.ascontiguousarray(seq_ids[order], np.int64),
        }
        if self.samples and sampling_params is not None:
            rows = np.asarray(sampling_params, np.float32)
            tensors["sampling_params"] = np.ascontiguousarray(rows[order])
        head: dict[str, Any] = {
            "op": "forward",
            "tensors": [
                {"name": name, "dtype": str(array.dtype), "shape": list(array.shape)}
                for name, array in tensors.items()
            ],
        }
        try:
            result, data = self._worker.order(head, [a.data.cast("B") for a in tensors.values()])
        except (OrderFailed, WorkerEnded, OverLimit) as error:
            raise _failed("a step", error, self._worker) from None
        row = result["tensors"][0]
        out = np.frombuffer(data, dtype=row["dtype"]).reshape(row["shape"])
        back = np.empty_like(out)
        back[order] = out
        return back

    def close(self) -> None:
        """End the worker; the device's memory goes with it."""
        if not self._closed:
            self._closed = True
            self._worker.close()

    def _check(
        self,
        input_ids: NDArray[np.int64],
        position_ids: NDArray[np.int64],
        seq_ids: NDArray[np.int64],
    ) -> None:
        rows = len(seq_ids)
        if input_ids.shape != position_ids.shape or input_ids.shape[0] != rows or not rows:
            raise RunError(
                f"shapes {input_ids.shape}, {position_ids.shape} and {seq_ids.shape} are not of "
                "the same rows"
            )
        if rows > self.batch_size:
            raise RunError(f"{rows} rows; the program has {self.batch_size} slots")
        slots = np.unique(seq_ids)
        if len(slots) != rows or slots[0] < 0 or slots[-1] >= self.batch_size:
            raise RunError(
                f"slots {seq_ids.tolist()} are not different ones of 0 to {self.batch_size - 1}"
            )
        starts = position_ids[:, 0] == 0
        if starts.any() and not starts.all():
            raise RunError("context encoding and token generation are not mixed in one call")
        if position_ids.max() >= self.seq_len:
            raise RunError(
                f"position {int(position_ids.max())} is beyond the compiled length {self.seq_len}"
            )
        longest = int((position_ids >= 0).sum(axis=1).max())
        if starts.all() and longest > self.max_context_length:
            raise PromptTooLongError(
                f"{longest} tokens; context encoding takes {self.max_context_length}",
                details={"prompt_tokens": longest, "limit": self.max_context_length},
            )
        if not starts.all() and input_ids.shape[1] != 1:
            raise RunError("token generation takes one token a row")


def _failed(what: str, error: Exception, worker: Worker) -> RunError:
    lines: list[str] = []
    with contextlib.suppress(OSError):
        text = worker.log.read_text(encoding="utf-8", errors="replace")
        lines = [line for line in text.splitlines() if line.strip()][-20:]
    reason = str(error)
    if isinstance(error, WorkerEnded):
        if error.killed_for_memory:
            reason = "the host's memory ran out"
        elif lines:
            reason = f"{error}, last saying: {lines[-1]}"
    return RunError(
        f"{what} failed: {reason}",
        hint="the last lines of its output are in the error's details (--json); "
        "neuroncompile doctor looks at the machine",
        details={"how": reason, "last_lines": lines},  # the log itself goes with the worker
    )
