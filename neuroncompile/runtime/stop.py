"""Stop strings, across token boundaries."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["StopMatcher"]


class StopMatcher:
    """Passes text through, holding back whatever may be the beginning of a stop string."""

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = tuple(stops)
        self._held = ""

    def push(self, text: str) -> tuple[str, str | None]:
        """Text that can be shown now, and the stop string that was met, if one was.

        The earliest stop string ends the text; of two that begin at one place, the longer is
        reported. Nothing of it is shown.
        """
        self._held += text
        found = [(at, -len(s), s) for s in self._stops if (at := self._held.find(s)) >= 0]
        if found:
            at, _, stop = min(found)
            shown, self._held = self._held[:at], ""
            return shown, stop
        keep = self._may_begin()
        shown = self._held[: len(self._held) - keep]
        self._held = self._held[len(self._held) - keep :]
        return shown, None

    def flush(self) -> str:
        """What was held back, once the text has ended another way."""
        shown, self._held = self._held, ""
        return shown

    def _may_begin(self) -> int:
        """Length of the longest end of the held text that begins some stop string."""
        longest = max(map(len, self._stops), default=1) - 1
        for size in range(min(longest, len(self._held)), 0, -1):
            if any(s.startswith(self._held[-size:]) for s in self._stops):
                return size
        return 0
