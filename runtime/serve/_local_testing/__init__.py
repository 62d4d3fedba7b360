"""Local testing mode: an application in this process, without a cluster, for unit tests and debuggers.

`serve.run(app, _local_testing_mode=True)` returns a handle that calls the application's code here. Nothing else changes
for the program: handles in constructors, streams, `@serve.batch`, request and replica contexts work as in a cluster.
"""

from __future__ import annotations

from .application import run_locally, stop_all

__all__ = ["run_locally", "stop_all"]
