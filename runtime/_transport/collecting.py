"""How often a daemon looks for garbage in cycles."""

from __future__ import annotations

import gc

YOUNG_OBJECTS = 20_000


def settle() -> None:
    """Call it once the daemon is up: what it has imported is no garbage, and looking through it again would stop the
    daemon for milliseconds each time. Messages refer to nothing in cycles, so it suffices to look rarely.
    """
    gc.freeze()
    gc.set_threshold(YOUNG_OBJECTS, 10, 10)
