"""Ports that a run holds for its life (contract: each port random in 5000 to 10000)."""

from __future__ import annotations

import errno
import socket
from contextlib import ExitStack
from typing import TYPE_CHECKING

from tfjob_magic.errors import UnavailableError

if TYPE_CHECKING:
    import random
    from typing import Self

FIRST, LAST = 5000, 10000  # inclusive


class HeldPorts:
    """Ports bound by this process: no other run gets them, and the run's tasks can serve on them.

    That is a hold against other runs and against whoever binds exclusively. A server that sets
    SO_REUSEADDR (Python's `http.server` does) gets such a port as a task's server would, until the
    task listens: the kernel cannot tell the two apart.

    Hand `fds` to the supervisor, which keeps them for the run's life, then close.
    """

    def __init__(self, sockets: list[socket.socket]) -> None:
        self._sockets = sockets
        self.numbers: tuple[int, ...] = tuple(held.getsockname()[1] for held in sockets)

    @property
    def fds(self) -> tuple[int, ...]:
        """The file descriptors that hold the ports."""
        return tuple(held.fileno() for held in self._sockets)

    def close(self) -> None:
        """Let go of the ports, as far as this process is concerned."""
        for held in self._sockets:
            held.close()
        self._sockets = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def hold(count: int, rng: random.Random, first: int = FIRST, last: int = LAST) -> HeldPorts:
    """Hold `count` different ports between `first` and `last`, inclusive, chosen by `rng`.

    Raises UnavailableError when there are not as many.
    """
    candidates = list(range(first, last + 1))
    rng.shuffle(candidates)
    sockets: list[socket.socket] = []
    with ExitStack() as undo:
        for port in candidates:
            if len(sockets) == count:
                break
            held = _hold(port)
            if held is not None:
                sockets.append(undo.enter_context(held))
        if len(sockets) < count:
            raise UnavailableError(
                f"nodes: the run needs {count} ports between {first} and {last} and only "
                f"{len(sockets)} are free here; ask for fewer nodes or stop another run"
            )
        undo.pop_all()
    return HeldPorts(sockets)


def _hold(port: int) -> socket.socket | None:
    """Bind a socket to a port of the whole machine; None when the port is taken.

    The bind is exclusive because no option is set; SO_REUSEADDR set afterwards lets a task's
    server bind and listen beside it, and still refuses a second exclusive bind. It never listens,
    so that a port whose task is not there yet refuses connections.
    """
    try:
        held = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    except OSError as error:
        raise UnavailableError(
            f"nodes: no more ports can be held ({error.strerror}); ask for fewer nodes or raise "
            "the limit of open files (`ulimit -n`)"
        ) from error
    try:
        held.bind(("0.0.0.0", port))  # noqa: S104 - TensorFlow's servers listen on all of them
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    except OSError as error:
        held.close()
        if error.errno in (errno.EADDRINUSE, errno.EACCES):
            return None
        raise
    if _is_taken_on_ipv6(port):
        held.close()
        return None
    return held


def _is_taken_on_ipv6(port: int) -> bool:
    # Who listens on IPv6 alone is no obstacle to the bind above, but to a task's server, which
    # binds both.
    try:
        with socket.socket(socket.AF_INET6, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            probe.bind(("::", port))
    except OSError as error:
        return error.errno == errno.EADDRINUSE  # anything else: no IPv6 on this machine
    return False
