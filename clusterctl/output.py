"""Everything the command line prints. Results go to stdout; progress, warnings and errors to stderr.

Plain text when the stream is no terminal or NO_COLOR is set.
"""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Iterable, Sequence
from typing import IO, Any

from clusterctl import settings

_CODES = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33"}


def styled(text: str, style: str, stream: IO[str]) -> str:
    """`text` in a terminal style when `stream` is a terminal that wants it."""
    if not stream.isatty() or settings.NO_COLOR.get() or settings.TERMINAL.get() == "dumb":
        return text
    return f"\x1b[{_CODES[style]}m{text}\x1b[0m"


def say(text: str = "") -> None:
    """One line of result. It is said beside the work where a command is part of another, whose result it is not."""
    if sys.stdout is sys.stderr:
        progress(text)
        return
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def raw(data: bytes) -> None:
    """Bytes of a job or a command, as they are."""
    sys.stdout.flush()
    buffer = getattr(sys.stdout, "buffer", None)
    if buffer is None:
        sys.stdout.write(data.decode(errors="replace"))
    else:
        buffer.write(data)
    sys.stdout.flush()


def as_json(value: Any) -> None:
    """A result for programs."""
    say(json.dumps(value, indent=2, sort_keys=False, default=str))


def as_json_line(value: Any) -> None:
    """One of several results for programs, on a line of its own."""
    say(json.dumps(value, default=str))


def progress(text: str) -> None:
    """One line about what happens now."""
    tell(sys.stderr, text + "\n")


def tell(stream: IO[str], text: str) -> None:
    """Writes what is said beside the work. That nobody is there any more to read it, as when a terminal was closed, is
    no reason to stop: what was begun must be ended, or removed again."""
    with contextlib.suppress(OSError):
        stream.write(text)
        stream.flush()


def warn(text: str) -> None:
    """Something the reader should know, although the command goes on."""
    progress(styled("warning: ", "yellow", sys.stderr) + text)


def error(message: str, hint: str = "") -> None:
    """Why the command failed, and what to do."""
    progress(styled("error: ", "red", sys.stderr) + message)
    if hint:
        progress(hint)


def somebody_is_there() -> bool:
    """Whether a question would be seen and could be answered."""
    return sys.stdin.isatty() and sys.stderr.isatty()


def confirm(question: str) -> bool:
    """Asks on the terminal; without one the answer is no."""
    if not sys.stdin.isatty():
        return False
    sys.stderr.write(f"{question} [y/N] ")
    sys.stderr.flush()
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def table(header: Sequence[str], rows: Iterable[Sequence[object]]) -> list[str]:
    """Aligned lines; columns are as wide as their widest cell."""
    cells = [[str(cell) for cell in row] for row in rows]
    widths = [max(len(row[i]) for row in [list(header), *cells]) for i in range(len(header))]
    lines = []
    for row in [list(header), *cells]:
        lines.append("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
    return lines


def duration(seconds: float) -> str:
    """A readable length of time."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(int(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours < 48 else f"{hours // 24} days"


def size(amount: float) -> str:
    """A readable number of bytes."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if amount < 1024:
            return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1024
    return f"{amount:.1f} TiB"
