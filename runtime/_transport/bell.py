"""Ends the wait of another thread."""

from __future__ import annotations

import os


class Bell:
    """An eventfd that one thread waits for, and any thread rings.

    `armed` is set by the thread that is about to wait, and taken back by the first that rings: others then need not
    write again. It takes no lock, so finalizers and signal handlers may ring. A ring that comes too late only makes the
    next wait short.
    """

    __slots__ = ("armed", "fd")

    def __init__(self) -> None:
        self.fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self.armed = False

    def ring(self) -> None:
        """Ends the wait, or the next one."""
        self.armed = False
        if self.fd >= 0:
            try:
                os.eventfd_write(self.fd, 1)
            except OSError:
                pass  # already pending, or closed at exit

    def clear(self) -> None:
        """Takes back what has rung."""
        if self.fd >= 0:
            try:
                os.eventfd_read(self.fd)
            except OSError:
                pass  # nothing was pending

    def close(self) -> None:
        """A later ring must not hit what gets the number of this descriptor next."""
        fd, self.fd = self.fd, -1
        if fd >= 0:
            os.close(fd)
