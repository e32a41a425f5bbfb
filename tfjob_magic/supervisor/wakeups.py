"""Sleeping until something happens: a signal, a nudge or a moment. No polling in between."""

from __future__ import annotations

import os
import select
import signal
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

LONGEST = 86_400.0  # seconds: poll counts milliseconds in an int


class Wakeups:
    """Signals and nudges as things to wait for; for a process of one thread."""

    def __init__(self, nudge: Path, hear: tuple[int, ...], ignore: tuple[int, ...]) -> None:
        self._signals, write = os.pipe()
        os.set_blocking(self._signals, False)
        os.set_blocking(write, False)
        signal.set_wakeup_fd(write, warn_on_full_buffer=False)
        for number in hear:
            signal.signal(number, _do_nothing)
        for number in ignore:
            signal.signal(number, signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        # Opened for both, so that it never ends: who nudges comes and goes.
        self._nudge = os.open(nudge, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        self._poll = select.poll()
        self._poll.register(self._signals, select.POLLIN)
        self._poll.register(self._nudge, select.POLLIN)

    def wait(self, seconds: float | None) -> set[int]:
        """Sleep until a signal, a nudge or the time comes; the signals that did."""
        timeout = None if seconds is None else max(0.0, min(seconds, LONGEST)) * 1000
        # Rounded up: waking just before a deadline would only mean sleeping again.
        self._poll.poll(None if timeout is None else int(timeout) + (timeout > 0))
        _drain(self._nudge, lambda _: None)
        came: set[int] = set()
        _drain(self._signals, came.update)
        return came


def _drain(fd: int, use: Callable[[bytes], None]) -> None:
    try:
        while data := os.read(fd, 4096):
            use(data)
    except BlockingIOError:
        return


def _do_nothing(*_: object) -> None:
    """Let a signal that is heard wake the loop, and that is all."""
