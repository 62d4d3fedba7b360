"""What a forked child closes: its copies of channels' descriptors would hide from the peers that its parent died."""

from __future__ import annotations

import contextlib
import os
import threading
import weakref
from typing import Protocol


class Holder(Protocol):
    """Has descriptors. One that closes them itself leaves `holders` before, or remembers it: the numbers of closed
    descriptors go to others."""

    def close_descriptors(self) -> None:
        """Closes them, in a forked child: a lock may be held for ever there, by a thread that is not."""


holders: weakref.WeakSet[Holder] = weakref.WeakSet()
"""What has descriptors of channels in this process."""

opening = threading.RLock()
"""Held while descriptors are opened and become known in `holders`; a fork waits for it. Nothing under it may block."""


def _close_all() -> None:
    opening.release()
    for holder in list(holders):
        with contextlib.suppress(OSError):  # the parent was about to make, or to close them
            holder.close_descriptors()
    holders.clear()


os.register_at_fork(before=opening.acquire, after_in_parent=opening.release, after_in_child=_close_all)
