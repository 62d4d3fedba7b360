"""A worker's standard output and error: two files, which its node's agent renames when they are large."""

from __future__ import annotations

import os

_descriptors: dict[bool, list[int]] = {False: [1], True: [2]}
"""Where output and errors (True) are written to."""


def add_descriptor(descriptor: int, is_error_stream: bool) -> None:
    """One more descriptor of the same file is written to."""
    _descriptors[is_error_stream].append(descriptor)


def reopen(path: str, is_error_stream: bool) -> None:
    """Goes on in a new file of this name, with the descriptors that still lead to the one that was renamed (`path` +
    ".1"). User code may have led some elsewhere. When more comes to the renamed file, the agent asks again."""
    try:
        renamed = os.stat(f"{path}.1")
        found = [number for number in _descriptors[is_error_stream] if _leads_to(number, renamed)]
        if not found:
            return
        log = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    except OSError:
        return  # it goes on in the renamed file
    for number in found:
        os.dup2(log, number, inheritable=os.get_inheritable(number))
    os.close(log)


def _leads_to(descriptor: int, file: os.stat_result) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), file)
    except OSError:  # a task closed it
        return False
