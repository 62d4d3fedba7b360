"""What a worker shows in the process list: `ray::f` while f runs, `ray::Actor.method`, and `ray::IDLE`."""

from __future__ import annotations

from typing import Protocol

from runtime._wire.messages.worker import Push

REST_S = 0.05
"""A worker that had nothing to do for so long shows that it is idle: not sooner, as calls often follow each other."""


class Title(Protocol):
    """See `runtime._system.process_title.ProcessTitle`."""

    def show(self, title: str) -> None: ...
    def name(self, title: str) -> None: ...


class WorkerTitle:
    """Says what runs on the main thread of a worker."""

    def __init__(self, title: Title) -> None:
        self._title = title
        self._class_name = ""
        self.rests()

    def runs(self, push: Push, name: str) -> None:
        """A call begins that is shown under another name than the one before."""
        title = f"ray::{name}"
        self._title.show(title)
        if push.actor is not None:
            self._class_name = push.actor.class_name
            title = f"ray::{self._class_name}"
        elif push.method:
            return  # to name the process costs a system call, and actors change between methods
        self._title.name(title)

    def rests(self) -> None:
        """Nothing runs."""
        title = f"ray::{self._class_name or 'IDLE'}"
        self._title.show(title)
        self._title.name(title)
