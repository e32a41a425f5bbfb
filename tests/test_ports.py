import os
import random
import socket
import subprocess
import sys
from contextlib import ExitStack

import pytest

from tfjob_magic.errors import UnavailableError
from tfjob_magic.store import ports


def free_range(length):
    """Find as many neighbouring ports as asked for that are free now."""
    rng = random.Random()
    for _ in range(200):
        first = rng.randrange(ports.FIRST, ports.LAST - length)
        try:
            ports.hold(length, rng, first, first + length - 1).close()
        except UnavailableError:
            continue
        return first, first + length - 1
    return pytest.fail("no free ports")


def serve(port, address="127.0.0.1"):
    """Listen as a task's server does."""
    server = socket.socket()
    server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    server.bind((address, port))
    server.listen()
    return server


def test_ports_are_different_and_within_the_contract():
    with ports.hold(64, random.Random(1)) as held:
        assert len(set(held.numbers)) == 64
        assert all(5000 <= port <= 10000 for port in held.numbers)


def test_the_choice_is_the_generators_and_the_ends_of_the_range_are_in_it():
    first, last = free_range(2)
    chosen = set()
    for seed in range(20):
        with ports.hold(1, random.Random(seed), first, last) as held:
            chosen.add(held.numbers[0])
    assert chosen == {first, last}


def test_a_port_is_held_against_another_run():
    first, last = free_range(1)
    refusal = pytest.raises(UnavailableError, match=r"needs 1 ports .* and only 0 are free")
    with ports.hold(1, random.Random(), first, last), refusal:
        ports.hold(1, random.Random(), first, last)
    ports.hold(1, random.Random(), first, last).close()


def test_a_task_can_serve_on_a_port_that_its_run_holds_and_again_after_it():
    with ports.hold(1, random.Random()) as held:
        for _ in range(2):
            with serve(held.numbers[0]) as server, socket.socket() as client:
                client.connect(server.getsockname())
                server.accept()[0].close()


def test_a_held_port_refuses_connections_until_its_task_is_there():
    refusal = pytest.raises(ConnectionRefusedError)
    with ports.hold(1, random.Random()) as held, socket.socket() as client, refusal:
        client.connect(("127.0.0.1", held.numbers[0]))


def test_a_hold_goes_on_in_the_process_that_it_is_handed_to():
    first, last = free_range(1)
    held = ports.hold(1, random.Random(), first, last)
    keeper = subprocess.Popen(
        [sys.executable, "-c", "input()"], stdin=subprocess.PIPE, pass_fds=held.fds
    )
    held.close()
    with pytest.raises(UnavailableError):
        ports.hold(1, random.Random(), first, last)
    keeper.communicate(b"\n")
    ports.hold(1, random.Random(), first, last).close()


def test_a_hold_is_not_inherited_unless_it_is_handed_over():
    with ports.hold(2, random.Random()) as held:
        assert not any(os.get_inheritable(fd) for fd in held.fds)


@pytest.mark.parametrize(
    ("family", "address", "v6_only"),
    [
        (socket.AF_INET, "0.0.0.0", None),  # noqa: S104 - as TensorFlow does
        (socket.AF_INET, "127.0.0.1", None),
        (socket.AF_INET, "127.0.0.2", None),
        (socket.AF_INET6, "::", 0),
        (socket.AF_INET6, "::", 1),
        (socket.AF_INET6, "::1", 1),
    ],
)
def test_a_port_on_which_anybody_listens_is_taken(family, address, v6_only):
    first, last = free_range(1)
    with socket.socket(family) as other:
        if v6_only is not None:
            other.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, v6_only)
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            other.bind((address, first))
        except OSError as error:
            pytest.skip(f"no {address} here: {error}")
        other.listen()
        with pytest.raises(UnavailableError):
            ports.hold(1, random.Random(), first, last)


def test_a_range_that_is_too_full_is_a_clear_refusal_and_nothing_stays_held():
    first, last = free_range(3)
    with pytest.raises(UnavailableError) as refusal:
        ports.hold(4, random.Random(), first, last)
    assert str(refusal.value) == (
        f"nodes: the run needs 4 ports between {first} and {last} and only 3 are free here; "
        "ask for fewer nodes or stop another run"
    )
    ports.hold(3, random.Random(), first, last).close()


def test_the_limit_of_open_files_is_named(monkeypatch):
    def no_more(*_):
        raise OSError(24, "Too many open files")

    monkeypatch.setattr(ports.socket, "socket", no_more)
    with pytest.raises(UnavailableError, match=r"Too many open files.*ulimit -n"):
        ports.hold(1, random.Random())


def test_no_port_is_a_hold_of_nothing():
    with ports.hold(0, random.Random()) as held:
        assert held.numbers == ()
        assert held.fds == ()


def test_two_runs_never_have_the_same_port():
    with ExitStack() as stack:
        runs = [stack.enter_context(ports.hold(20, random.Random(7))) for _ in range(5)]
        assert len({port for run in runs for port in run.numbers}) == 100
