"""How a process ended, in words (contract E3).

Standard library only, Python 3.10 syntax: the supervisor names a failure's reason with it.
"""

from __future__ import annotations

# Linux's numbers: the core is pure and has no `signal` module to ask.
SIGNALS: dict[int, str] = {
    1: "SIGHUP",
    2: "SIGINT",
    3: "SIGQUIT",
    4: "SIGILL",
    5: "SIGTRAP",
    6: "SIGABRT",
    7: "SIGBUS",
    8: "SIGFPE",
    9: "SIGKILL",
    10: "SIGUSR1",
    11: "SIGSEGV",
    12: "SIGUSR2",
    13: "SIGPIPE",
    14: "SIGALRM",
    15: "SIGTERM",
    24: "SIGXCPU",
    25: "SIGXFSZ",
    31: "SIGSYS",
}
KILL = 9

CRASHES: dict[int, str] = {
    4: "illegal instruction",
    5: "trace trap",
    6: "abort",
    7: "bus error",
    8: "floating-point exception",
    11: "segmentation fault",
    31: "bad system call",
}

CODES: dict[int, str] = {
    126: "the program was found but could not be executed",
    127: "the program was not found",
}

FIRST_SIGNAL_CODE = 129  # a shell that saw its program die of signal n exits with 128 + n


def signal_name(number: int) -> str:
    """`SIGKILL` for 9; `signal 35` for one without a name here."""
    return SIGNALS.get(number, f"signal {number}")


def words(code: int | None, signal: int | None, oom_kills: int = 0) -> str:
    """How a process ended, as the words that follow its name: "exited with code 1".

    `code` is what it returned, `signal` what ended it; both are None when nobody saw its end.
    `oom_kills` counts the kernel's out-of-memory kills on this machine while it ran: they are
    named as the likely reason of a SIGKILL, which the kernel sends without a word.
    """
    if signal is not None:
        return _died(signal, oom_kills)
    if code is None:
        return "ended unseen"
    said = f"exited with code {code}"
    if code in CODES:
        return f"{said} ({CODES[code]})"
    inner = code - FIRST_SIGNAL_CODE + 1
    if inner in SIGNALS:
        memory = _memory(inner, oom_kills)
        return f"{said} (a program that it ran died of {SIGNALS[inner]}{memory})"
    return said


def _died(signal: int, oom_kills: int) -> str:
    if signal in CRASHES:
        return f"crashed: {signal_name(signal)} ({CRASHES[signal]})"
    return f"was killed by {signal_name(signal)}{_memory(signal, oom_kills)}"


def _memory(signal: int, oom_kills: int) -> str:
    if signal != KILL or oom_kills <= 0:
        return ""
    times = "once" if oom_kills == 1 else f"{oom_kills} times"
    return (
        ", most likely out of memory: the kernel's OOM killer struck "
        f"{times} on this machine meanwhile"
    )
