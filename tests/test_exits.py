import signal

import pytest

from tfjob_magic.core.exits import SIGNALS, signal_name, words


@pytest.mark.parametrize(
    ("code", "number", "oom_kills", "said"),
    [
        (0, None, 0, "exited with code 0"),
        (1, None, 0, "exited with code 1"),
        (1, None, 3, "exited with code 1"),
        (126, None, 0, "exited with code 126 (the program was found but could not be executed)"),
        (127, None, 0, "exited with code 127 (the program was not found)"),
        (128, None, 0, "exited with code 128"),
        (139, None, 0, "exited with code 139 (a program that it ran died of SIGSEGV)"),
        (255, None, 0, "exited with code 255"),
        (None, 15, 0, "was killed by SIGTERM"),
        (None, 15, 2, "was killed by SIGTERM"),
        (None, 9, 0, "was killed by SIGKILL"),
        (None, 11, 0, "crashed: SIGSEGV (segmentation fault)"),
        (None, 6, 1, "crashed: SIGABRT (abort)"),
        (None, 35, 0, "was killed by signal 35"),
        (None, None, 0, "ended unseen"),
    ],
)
def test_an_end_is_told_in_words(code, number, oom_kills, said):
    assert words(code, number, oom_kills) == said


@pytest.mark.parametrize(("struck", "times"), [(1, "once"), (4, "4 times")])
def test_a_sigkill_while_the_oom_killer_struck_names_memory(struck, times):
    reason = (
        ", most likely out of memory: the kernel's OOM killer struck "
        f"{times} on this machine meanwhile"
    )
    assert words(None, 9, struck) == "was killed by SIGKILL" + reason
    assert words(137, None, struck) == (
        f"exited with code 137 (a program that it ran died of SIGKILL{reason})"
    )


def test_signals_have_the_numbers_of_this_platform():
    for number, name in SIGNALS.items():
        assert signal.Signals(number).name == name
        assert signal_name(number) == name
