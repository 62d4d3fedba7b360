"""The log of a daemon."""

from __future__ import annotations

import logging
import sys

from . import settings


def begin() -> None:
    """Logs to stderr, which the daemon's starter has led into a file. CLUSTERCTL_LOG_LEVEL is the level."""
    logging.basicConfig(
        level=settings.LOG_LEVEL.get_or_default(),
        format="%(asctime)s %(levelname)s %(name)s: %(message)s",
        stream=sys.stderr,
    )
