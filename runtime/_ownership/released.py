"""What has died in a process and waits for the pump: references, views of objects, streams."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any


class Released(deque[Any]):
    """Finalizers append to it, at any moment and on any thread, so they take no lock.

    `resting`: the pump waits for long, and wants to be woken by the next one.
    """

    __slots__ = ("_wake", "resting")

    def __init__(self, wake: Callable[[], None], maxlen: int | None = None) -> None:
        super().__init__(maxlen=maxlen)
        self._wake = wake
        self.resting = False

    def add(self, item: Any) -> None:
        """Takes what has died."""
        self.append(item)
        if self.resting:
            self.wake()

    def wake(self) -> None:
        """After an append, if `resting`."""
        self.resting = False
        self._wake()


NOWHERE = Released(lambda: None, maxlen=0)
"""Forgets what is added: for what outlives its session."""
