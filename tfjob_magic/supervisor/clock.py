"""The time of events: steady, and seconds since the epoch all the same."""

from __future__ import annotations

import time

RESOLUTION = 1e-6


class Clock:
    """The wall clock as of its making, carried on by one that nobody sets.

    So a deadline keeps its distance when the machine's clock is set, and two readings are never
    equal: events with the same time were seen at the same moment.
    """

    def __init__(self) -> None:
        self._offset = time.time() - _steady()
        self._last = 0.0

    def read(self) -> float:
        """Seconds since the epoch, later than every reading before."""
        self._last = max(self._offset + _steady(), self._last + RESOLUTION)
        return self._last


def _steady() -> float:
    # A suspended machine's time counts: a timeout of an hour is an hour.
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))
