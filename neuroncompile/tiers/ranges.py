"""A range of a blob on its way, which its reader takes in chunks as they come."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from queue import SimpleQueue

__all__ = ["Range"]


class Range:
    """Fetched by a thread of the pool, at most as long as somebody reads on.

    What `chunks` raises is raised where it is read.
    """

    def __init__(
        self,
        pool: ThreadPoolExecutor,
        chunks: Callable[[str, int, int], Iterator[bytes]],
        name: str,
        start: int,
        end: int,
    ) -> None:
        self._chunks = chunks(name, start, end)
        self._queue: SimpleQueue[bytes | Exception | None] = SimpleQueue()
        self._stopped = False
        self._future = pool.submit(self._fetch)

    def _fetch(self) -> None:
        try:
            for chunk in self._chunks:
                if self._stopped:
                    return
                self._queue.put(chunk)
        except Exception as error:
            self._queue.put(error)
        else:
            self._queue.put(None)

    def __iter__(self) -> Iterator[bytes]:
        try:
            while (chunk := self._queue.get()) is not None:
                if isinstance(chunk, Exception):
                    raise chunk
                yield chunk
        finally:
            self.stop()

    def stop(self) -> None:
        """Nobody reads on: end at the next chunk, or never begin."""
        self._stopped = True
        self._future.cancel()
