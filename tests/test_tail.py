"""Logs by byte offset, and lines as a terminal would have shown them last."""

from __future__ import annotations

import os
import re
import tracemalloc
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfjob_magic import tail
from tfjob_magic.tail import WIDTH, Lines


def lines(*chunks: bytes, colours: bool = False) -> list[str]:
    assembler = Lines(colours=colours)
    finished = [line for chunk in chunks for line in assembler.feed(chunk)]
    return finished + assembler.end()


def test_a_log_is_read_from_an_offset_and_up_to_a_limit(tmp_path):
    log = tmp_path / "log"
    log.write_bytes(b"0123456789")
    assert tail.read(log, 3, 4) == b"3456"
    assert tail.read(log, 8, 100) == b"89"
    assert tail.read(log, 50, 100) == b""
    assert tail.size(log) == 10


def test_a_log_that_is_not_there_yet_is_empty(tmp_path):
    assert tail.read(tmp_path / "log", 0, 100) == b""
    assert tail.size(tmp_path / "log") == 0


@pytest.mark.parametrize("put", ["a FIFO", "a directory", "a link", "a link to a FIFO"])
def test_what_a_task_put_in_the_place_of_its_log_is_empty_and_not_waited_for(tmp_path, put):
    log = tmp_path / "log"
    target = tmp_path / "target" if put.startswith("a link") else log
    if put.endswith("FIFO"):
        os.mkfifo(target)
    elif put == "a directory":
        log.mkdir()
    else:
        target.write_text("secret")
    if target != log:
        log.symlink_to(target)
    assert tail.read(log, 0, 100) == b""
    assert tail.size(log) == 0


def test_a_log_below_a_file_is_empty(tmp_path):
    (tmp_path / "logs").write_text("x")
    assert tail.read(tmp_path / "logs" / "log", 0, 100) == b""
    assert tail.size(tmp_path / "logs" / "log") == 0


@pytest.mark.parametrize(
    ("data", "shown"),
    [
        (b"one\ntwo\n", ["one", "two"]),
        (b"one\n\ntwo", ["one", "", "two"]),
        (b"windows\r\nends\r\n", ["windows", "ends"]),
        (b"10%\r20%\r100%\n", ["100%"]),
        (b"10%\r20%\rdone", ["done"]),
        (b"abc\rX\n", ["Xbc"]),
        (b"abc\b\bX\n", ["aXc"]),
        (b"abc\b\b\b\b\b\bX\n", ["Xbc"]),
        (b"a longer line\r\x1b[Kshort\n", ["short"]),
        (b"a longer line\x1b[2K\rshort\n", ["short"]),
        (b"a longer line\r\x1b[2Kshort\n", ["short"]),
        (b"gone\r\x1b[K", []),
        (b"a\tb\n", ["a\tb"]),
        (b"\x1b[31mred\x1b[0m\n", ["red"]),
        (b"\x1b[1;38;5;196mred\x1b[m and\x1b(B plain\n", ["red and plain"]),
        (b"\x1b]0;a title\x07text\n", ["text"]),
        (b"\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\\n", ["link"]),
        (b"\x1b]never ended\nnext\n", ["", "next"]),
        (b"\x1b[3\nnext\n", ["", "next"]),
        (b"bell\x07 null\x00 vertical\x0b delete\x7f\n", ["bell null vertical delete"]),
        ("grüße 火 🙂\n".encode(), ["grüße 火 🙂"]),
        (b"bad \xff\xfe bytes\n", ["bad \ufffd\ufffd bytes"]),
        (b"cut \xe7\x81", ["cut \ufffd"]),
        (b"\xc2\x85 \xc2\x9b\n", [" "]),
    ],
)
def test_a_line_is_what_a_terminal_would_show_last(data, shown):
    assert lines(data) == shown


def test_colours_are_kept_on_demand_and_closed_with_every_line():
    assert lines(b"\x1b[31mred\nstill\x1b[0m plain\n", colours=True) == [
        "\x1b[31mred\x1b[0m",
        "\x1b[31mstill\x1b[0m plain",
    ]


def test_an_overwritten_colour_goes_with_its_text():
    assert lines(b"\x1b[31mred\x1b[m\rblue\n", colours=True) == ["blue"]


PIECES = st.sampled_from(
    [
        *[b"a", b"word ", b"\r", b"\n", b"\b", b"\b\b\b", b"\t", b"\x00", b"\x07", b"\x1b"],
        *["火".encode(), "🙂".encode(), b"\xff", b"\xe7", b"\xc2\x9b"],
        *[b"\x1b[", b"\x1b[31m", b"\x1b[0m", b"\x1b[K", b"\x1b[2K", b"\x1b[" + b"1" * 70 + b"m"],
        *[b"\x1b]0;t", b"\x1b\\", b"[", b"3", b";", b"m"],
    ]
)


@given(
    data=st.lists(st.one_of(PIECES, st.binary(max_size=3)), max_size=40).map(b"".join),
    cuts=st.lists(st.integers(0, 200)),
    colours=st.booleans(),
)
def test_any_split_of_the_bytes_gives_the_same_lines(data, cuts, colours):
    marks = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    chunks = [data[start:stop] for start, stop in pairwise(marks)]
    whole = lines(data, colours=colours)
    assert lines(*chunks, colours=colours) == whole
    assert lines(*(bytes([byte]) for byte in data), colours=colours) == whole


@given(st.binary(max_size=200))
def test_no_control_character_leaves_in_plain_lines(data):
    assert not [line for line in lines(data) if re.search("[\x00-\x08\x0a-\x1f\x7f-\x9f]", line)]


@given(st.lists(st.text(st.characters(exclude_categories=["C"]), max_size=30)))
def test_plain_text_passes_unchanged(texts):
    assert lines("".join(f"{text}\n" for text in texts).encode()) == texts


def test_a_line_beyond_the_width_says_how_much_is_missing():
    assert lines(b"x" * (WIDTH + 7) + b"\n") == ["x" * WIDTH + " … and 7 more characters"]


def test_a_line_of_ten_megabytes_is_bounded_in_memory():
    assembler = Lines()
    chunk = b"y" * 65536
    tracemalloc.start()
    for _ in range(160):
        assert assembler.feed(chunk) == []
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 1_000_000
    (line,) = assembler.end()
    assert line == "y" * WIDTH + f" … and {160 * 65536 - WIDTH} more characters"


def test_a_keras_line_of_a_quarter_million_backspaces_is_its_last_state():
    bar = b"".join(
        b"\r" + b"\b" * 60 + b"%4d/4000 [=====>......] - loss: 0.5" % step for step in range(4001)
    )
    assert bar.count(b"\b") > 240_000
    assert lines(bar + b"\n") == ["4000/4000 [=====>......] - loss: 0.5"]


@given(data=st.lists(PIECES, max_size=40).map(b"".join), colours=st.booleans())
def test_the_unfinished_line_is_what_the_end_would_make_of_it(data, colours):
    assembler = Lines(colours=colours)
    assembler.feed(data + b".")  # so that no character is cut at the end
    first = assembler.unfinished
    assert assembler.unfinished == first  # a look changes nothing
    assert first == "".join(assembler.end())
    assert assembler.unfinished == ""
