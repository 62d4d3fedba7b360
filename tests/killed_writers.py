"""Kills a process after each step of something that it does."""

from __future__ import annotations

import os
import signal
import sys
import traceback
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any


def killed_after_each_line(action: Callable[[], object], files: set[str]) -> Iterator[int]:
    """Runs `action` again and again, each time in a process that is killed before the next line of the given source
    files; ends after the first that came to its end. Yields after each death how many lines had been reached."""
    lines = 0
    while True:
        lines += 1
        pid = os.fork()
        if pid == 0:
            _run(action, files, lines)
        _, status = os.waitpid(pid, 0)
        if os.WIFEXITED(status):
            assert os.WEXITSTATUS(status) == 0
            return
        assert os.WTERMSIG(status) == signal.SIGKILL
        yield lines


def _run(action: Callable[[], object], files: set[str], lines: int) -> None:
    left = lines

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal left
        if frame.f_code.co_filename not in files:
            return None
        if event == "line":
            left -= 1
            if left < 0:
                os.kill(os.getpid(), signal.SIGKILL)
        return trace

    try:
        sys.settrace(trace)
        action()
        sys.settrace(None)
        os._exit(0)
    except BaseException:
        traceback.print_exc()
        os._exit(1)
