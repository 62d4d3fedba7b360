"""What the head is started with: one JSON file, written by `up` (or by `clusterctl start --head`)."""

from __future__ import annotations

from pathlib import Path

import msgspec

from clusterctl.spec.definition import Autostop, ClusterSpec


class HeadConfig(msgspec.Struct, kw_only=True):
    """Without `spec` the head has no autoscaler: machines are joined by hand."""

    cluster_id: str
    cluster_name: str
    host: str = "127.0.0.1"  # of the control store and the agent: what other machines reach
    control_port: int = 0
    api_port: int = 0
    client_host: str = "127.0.0.1"  # of the server for remote drivers
    client_port: int = 0  # 0: the usual one, or another
    node_type: str = "head"
    resources: dict[str, float] = {}
    labels: dict[str, str] = {}
    instance_id: str = ""
    node_name: str = ""
    is_temporary: bool = False  # its session folder goes with it
    spec: ClusterSpec | None = None
    provider_settings: dict[str, str] = {}
    restarts: bool = False  # when it has crashed
    in_container: bool = False  # which does not start with the machine
    shutdown_ends: bool = False  # the costs of its machine
    autostop: Autostop | None = None  # what counts instead of the spec's, if `autostop_is_set`
    autostop_is_set: bool = False

    def policy(self) -> Autostop | None:
        """When the cluster ends by itself; None: it stays."""
        if self.autostop_is_set or self.spec is None:
            return self.autostop
        return self.spec.autostop

    @classmethod
    def read(cls, path: str) -> HeadConfig:
        """Reads the file.

        Raises:
            ValueError: it is no such configuration.
        """
        return msgspec.json.decode(Path(path).read_bytes(), type=cls)

    def to_json(self) -> bytes:
        return msgspec.json.encode(self)
