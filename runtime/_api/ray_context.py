"""What `init` returns."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from runtime._system.ray_version import RAY_COMMIT, RAY_VERSION


def address_info(
    node_id: str,
    host: str,
    store: str,
    socket: str,
    session_dir: str,
    address: str | None,
    metrics_port: int = 0,
    api: str = "",
) -> dict[str, Any]:
    """The addresses of a node, under Ray's names.

    Args:
        store: a name that is unique to its object store.
        socket: the node agent's Unix socket.
        address: of the control store.
        api: host:port of the job API.
    """
    return {
        "node_ip_address": host,
        "redis_address": None,
        "object_store_address": store,
        "raylet_socket_name": socket,
        "webui_url": api,
        "session_dir": session_dir,
        "metrics_export_port": metrics_port,
        "gcs_address": address,
        "address": address,
        "dashboard_agent_listen_port": 0,
        "node_id": node_id,
    }


class RayContext(Mapping[str, Any]):
    """Facts about the cluster, and a context manager that shuts down at its end.

    Attributes:
        address_info: addresses, folders and ids; as a mapping (deprecated) the context shows the same.
        dashboard_url: host:port of the job API, "" without one. There are no pages.
        python_version: of this process.
        ray_version: the version of Ray whose API this is.
    """

    def __init__(self, leave: Callable[[], None], address_info: dict[str, Any]) -> None:
        self._leave = leave
        self.address_info = address_info
        self.dashboard_url: str = address_info["webui_url"]
        self.python_version = ".".join(map(str, sys.version_info[:3]))
        self.ray_version = RAY_VERSION
        self.ray_commit = RAY_COMMIT

    def disconnect(self) -> None:
        """Leaves the cluster."""
        self._leave()

    def __enter__(self) -> RayContext:
        return self

    def __exit__(self, *_error: object) -> None:
        self.disconnect()

    def __getitem__(self, key: str) -> Any:
        warnings.warn(
            f'ctx["{key}"] is deprecated: use ctx.address_info["{key}"].', DeprecationWarning, stacklevel=2
        )
        return self.address_info[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self.address_info)

    def __len__(self) -> int:
        return len(self.address_info)

    def __repr__(self) -> str:
        return (
            f"RayContext(dashboard_url={self.dashboard_url!r}, python_version={self.python_version!r}, "
            f"ray_version={self.ray_version!r}, ray_commit={self.ray_commit!r})"
        )
