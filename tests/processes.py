"""Whether a process lives."""

from __future__ import annotations

import pathlib


def is_alive(pid: int) -> bool:
    """Whether the process exists and is more than a zombie."""
    try:
        stat = pathlib.Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):  # the latter if it went between opening and reading
        return False
    return stat.rsplit(")", 1)[1].split()[0] != "Z"
