"""Stop strings, across token boundaries."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["StopMatcher"]


class StopMatcher:
    """Passes text through, holding back whatever may be the beginning of a stop string.

    The stop string that is complete first ends the text, as if characters came one by one; so
    the answer does not depend on how tokens cut it. Of two that are complete at once the longer
    counts.
    """

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = tuple(stops)
        self._held = ""

    def push(self, text: str) -> tuple[str, str | None]:
        """Text that can be shown now, and the stop string that was met, if one was."""
        self._held += text
        found = [(at + len(s), at, s) for s in self._stops if (at := self._held.find(s)) >= 0]
        if found:
            _, at, stop = min(found)
            shown, self._held = self._held[:at], ""
            return shown, stop
        cut = len(self._held) - self._may_begin()
        shown, self._held = self._held[:cut], self._held[cut:]
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
