"""Remote drivers: a program outside the cluster works through a driver process on the head (`ray://host:port`).

`link`, `core` and what they import run in the program, `server` and `driver` on the head, `stream`, `frames` and
`messages` in both. Only `runtime._api.init` and `clusterctl.head` start any of it. See docs/adr/0008-remote-drivers.md.
"""

from __future__ import annotations

import os

# Before gRPC is loaded: its own handlers of fork() crash children of a process that uses grpc.aio. Here no child uses
# the connection of its parent (see `link.Link.open`).
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")
