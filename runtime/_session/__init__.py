"""Starts and stops the daemons of a session on this host, and finds those that run. Above `_control` and
`_node`; the public API and `clusterctl` use it.
"""

from .daemons import Daemon, DaemonError, settings_environment, start_control, start_local, start_node
from .directories import new_session_dir, write_secret
from .discovery import NodeRecord, find_agent

__all__ = [
    "Daemon",
    "DaemonError",
    "NodeRecord",
    "find_agent",
    "new_session_dir",
    "settings_environment",
    "start_control",
    "start_local",
    "start_node",
    "write_secret",
]
