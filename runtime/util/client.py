"""Whether this program drives its cluster from outside: what libraries ask of Ray Client.

`init("ray://host:port")` connects; `connect` and `disconnect` are its older form.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any

from runtime._api.init import init, shutdown
from runtime._process.core_worker import current_or_none
from runtime._system.ray_version import RAY_COMMIT, RAY_VERSION
from runtime.job_config import JobConfig

PREFIX = "ray://"


class Connection:
    """The connection of this program."""

    def is_connected(self) -> bool:
        """Whether this program is connected by `ray://`."""
        core = current_or_none()
        return core is not None and core.is_remote


ray = Connection()


def num_connected_contexts() -> int:
    """The number of connections by `ray://`: 0 or 1."""
    return int(ray.is_connected())


def connect(
    conn_str: str,
    secure: bool = False,
    metadata: Sequence[tuple[str, str]] | None = None,
    connection_retries: int = 3,
    job_config: JobConfig | None = None,
    namespace: str | None = None,
    *,
    ignore_version: bool = False,
    ray_init_kwargs: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Connects to the server for remote drivers at `conn_str`, host:port. Deprecated: use `init("ray://host:port")`.

    Args:
        secure: without effect, as are `metadata`, `connection_retries` and `ignore_version`; RAY_USE_TLS encrypts.
        job_config: see `init`, which also has `namespace` and the others of `ray_init_kwargs`.

    Returns:
        Versions of the API and of Python, and the number of connections.
    """
    init(
        PREFIX + conn_str.removeprefix(PREFIX),
        job_config=job_config,
        namespace=namespace,
        **(ray_init_kwargs or {}),
    )
    return {
        "num_clients": num_connected_contexts(),
        "python_version": ".".join(map(str, sys.version_info[:3])),
        "ray_version": RAY_VERSION,
        "ray_commit": RAY_COMMIT,
    }


def disconnect() -> None:
    """Ends the connection by `ray://`, if there is one."""
    if ray.is_connected():
        shutdown()
