"""Where in the program the references that a process owns were made, with RAY_record_ref_creation_sites."""

from __future__ import annotations

import os
import sys
import threading
from collections import OrderedDict

from runtime._core import ids

MAX_SITES = 100_000
"""So many references are remembered, the newest."""
MAX_FRAMES = 10
_ENGINE = os.path.dirname(os.path.dirname(__file__)) + os.sep
_OUR_FRAMES = 2
"""`_program_frames` and `_record`: where to look from."""


class SiteIds(ids.TaskIds):
    """Every reference begins with a fresh id, which the thread of the program takes: its stack tells where."""

    __slots__ = ("_lock", "_sites")

    def __init__(self, job_id: bytes) -> None:
        super().__init__(job_id)
        self._sites: OrderedDict[bytes, str] = OrderedDict()
        self._lock = threading.RLock()  # a finalizer may submit a task

    def task(self) -> bytes:
        """See `TaskIds.task`."""
        return self._record("(task call)", super().task())

    def call(self, actor_id: bytes) -> bytes:
        """See `TaskIds.call`."""
        return self._record("(actor call)", super().call(actor_id))

    def put(self) -> bytes:
        """See `TaskIds.put`."""
        return self._record("(put object)", super().put())

    def site_of(self, object_id: bytes) -> str:
        """See `TaskIds.site_of`."""
        return self._sites.get(ids.task_id_of(object_id), "")

    def _record(self, kind: str, made: bytes) -> bytes:
        site = " | ".join((kind + " ", *_program_frames()))
        with self._lock:
            self._sites[ids.task_id_of(made)] = site
            if len(self._sites) > MAX_SITES:
                self._sites.popitem(last=False)
        return made


def _program_frames() -> list[str]:
    """The calls of the program that led here, the last one first: "file:function:line"."""
    frame = sys._getframe(_OUR_FRAMES)
    found: list[str] = []
    while frame is not None and len(found) < MAX_FRAMES:
        code = frame.f_code
        if not code.co_filename.startswith(_ENGINE):
            found.append(f"{code.co_filename}:{code.co_name}:{frame.f_lineno}")
        frame = frame.f_back  # type: ignore[assignment]
    return found
