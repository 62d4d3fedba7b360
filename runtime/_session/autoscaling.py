"""A cluster of this machine that grows and shrinks, through `clusterctl` as a process: the engine does not know it."""

from __future__ import annotations

import json
import os
import secrets
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from runtime._node import registry
from runtime._node.zygote_spawn import daemon_environment
from runtime._system import settings

UP_TIMEOUT_S = 120.0
_NODE_TYPE_KEYS = ("resources", "labels", "min_workers", "max_workers")


class AutoscalingCluster:
    """A head on this machine, and workers that come when work waits and go when they idle, all of them processes here.

    Args:
        head_resources: of the head, e.g. `{"CPU": 1}`.
        worker_node_types: by name: `resources`, `min_workers`, `max_workers`; `node_config` is ignored.
        autoscaler_v2: without a meaning: there is one autoscaler.
        config_kwargs: further keys of the cluster's specification, e.g. `idle_timeout_minutes`, `max_workers`.
    """

    def __init__(
        self,
        head_resources: Mapping[str, float],
        worker_node_types: Mapping[str, Mapping[str, Any]],
        autoscaler_v2: bool = False,
        **config_kwargs: Any,
    ) -> None:
        types = {
            name: {key: value for key, value in node_type.items() if key in _NODE_TYPE_KEYS}
            for name, node_type in worker_node_types.items()
        }
        config_kwargs.pop("provider", None)
        self._spec: dict[str, Any] = {
            "cluster_name": f"autoscaling-{os.getpid()}-{secrets.token_hex(3)}",
            "max_workers": sum(int(node_type.get("max_workers", 1)) for node_type in types.values()),
            "head_node_type": "head",
            "available_node_types": {"head": {"resources": dict(head_resources)}, **types},
            **config_kwargs,
        }
        self._root = ""
        self._env_vars: dict[str, str] = {}
        self._record: str | None = None

    def start(
        self, _system_config: Mapping[str, Any] | None = None, override_env: Mapping[str, str] | None = None
    ) -> None:
        """Starts the head and the least number of workers; then `init("auto")` connects.

        Args:
            _system_config: without a meaning here.
            override_env: environment of the command that starts the cluster.

        Raises:
            RuntimeError: it did not come up.
        """
        self._env_vars = dict(override_env or {})
        # Short: the paths of Unix sockets below it are limited to 107 bytes.
        self._root = tempfile.mkdtemp(prefix="ac-", dir=settings.TEMPORARY_ROOT.get() or None)
        spec = {**self._spec, "provider": {"type": "local", "root": self._root}}
        self._spec_file.write_text(json.dumps(spec, indent=1))  # JSON is YAML
        try:
            self._run("up", "--yes", "--timeout", f"{UP_TIMEOUT_S:g}", str(self._spec_file))
            self._record = self._publish_head()
        except BaseException:
            self.shutdown()
            raise

    def shutdown(self) -> None:
        """Ends the cluster and all that it started. Doing it twice is fine."""
        if not self._root:
            return
        if self._record is not None:
            registry.remove_record(self._record)
            self._record = None
        self._run("down", "--yes", str(self._spec_file))
        shutil.rmtree(self._root, ignore_errors=True)
        self._root = ""

    @property
    def _spec_file(self) -> Path:
        return Path(self._root) / "cluster.yaml"

    def _run(self, *arguments: str) -> None:
        done = subprocess.run(
            [sys.executable, "-m", "clusterctl", *arguments],
            env={**daemon_environment(), **self._env_vars},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=2 * UP_TIMEOUT_S,
            check=False,
        )
        if done.returncode:
            raise RuntimeError(f"clusterctl {arguments[0]} failed:\n{done.stdout}{done.stderr}".rstrip())

    def _publish_head(self) -> str:
        """The head's agent keeps its record in its machine's folder: link it to where programs of this user look."""
        for path in Path(self._root).glob("*/clusterctl-*/nodes/*.json"):
            record = registry.NodeRecord(**json.loads(path.read_text()))
            if record.is_head:
                return registry.publish_link(str(path))
        raise RuntimeError(f"The head came up, but left no record below {self._root}.")
