"""The title of this process: what `ps` and `top` show as its command line and its name."""

from __future__ import annotations

import ctypes

from runtime._system import files

_PR_SET_NAME = 15
_ARGUMENTS_START, _ARGUMENTS_END = 45, 46
"""Places of the addresses among the fields of /proc/PID/stat that follow the program's name (see `man 5 proc`)."""
_KEPT = 100
"""Titles that are kept as they are written."""


class ProcessTitle:
    """Writes titles over this process's arguments in memory, from where the kernel takes the command line.

    A title is cut to the room that the arguments had: the environment behind them, by which others find our processes,
    stays as it is. Where the kernel does not tell the place, no title is shown.
    """

    def __init__(self) -> None:
        fields = files.read("/proc/self/stat").rpartition(")")[2].split()
        start, end = int(fields[_ARGUMENTS_START]), int(fields[_ARGUMENTS_END])
        self._room = max(0, end - start) if start else 0
        self._memory = memoryview((ctypes.c_char * self._room).from_address(start or 1)).cast("B")
        self._prctl = ctypes.CDLL(None).prctl
        self._drawn: dict[str, bytes] = {}

    def show(self, title: str) -> None:
        """Shows a title as the command line. It costs some hundred nanoseconds."""
        drawn = self._drawn.get(title)
        if drawn is None:
            if len(self._drawn) >= _KEPT:
                self._drawn.clear()
            text = title.encode(errors="replace")[: max(0, self._room - 1)]
            drawn = self._drawn[title] = text.ljust(self._room, b"\0")
        self._memory[:] = drawn

    def name(self, title: str) -> None:
        """Shows its first 15 bytes as the name of the calling thread: the process's, if it is the main one."""
        self._prctl(_PR_SET_NAME, ctypes.c_char_p(title.encode(errors="replace")), 0, 0, 0)
