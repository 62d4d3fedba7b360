"""Starts and stops the daemons of a session on this host, and finds those that run. Above `_control` and
`_node`; the public API and `clusterctl` use it.

Its names are imported when they are used: daemons are modules of this package too, and must come up fast.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .daemons import Daemon, DaemonError, settings_environment, start_control, start_local, start_node
    from .directories import new_session_dir, write_secret
    from .discovery import NodeRecord, find_agent
    from .local_head import start_local_head

__all__ = [
    "Daemon",
    "DaemonError",
    "NodeRecord",
    "find_agent",
    "new_session_dir",
    "settings_environment",
    "start_control",
    "start_local",
    "start_local_head",
    "start_node",
    "write_secret",
]
_HOMES = {
    "NodeRecord": "discovery",
    "find_agent": "discovery",
    "new_session_dir": "directories",
    "start_local_head": "local_head",
    "write_secret": "directories",
}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"{__name__}.{_HOMES.get(name, 'daemons')}"), name)
    globals()[name] = value
    return value
