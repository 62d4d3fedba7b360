"""A cluster of several nodes on this machine, each with processes of its own: for tests and for trying things out."""

from __future__ import annotations

import os
import shutil
import signal
import time
from typing import Any

from runtime._session import Daemon, new_session_dir, start_control, start_node, write_secret


class ClusterNode:
    """One node: its agent's process, and what is below it."""

    def __init__(self, daemon: Daemon, session_dir: str) -> None:
        self.daemon = daemon
        self.session_dir = session_dir
        self.node_id: str = daemon.ready["node_id"]
        self.unix_path: str = daemon.ready["unix_path"]

    @property
    def pid(self) -> int:
        """Process id of the node agent."""
        return self.daemon.process.pid

    def kill(self) -> None:
        """Ends the node as a power failure would: SIGKILL to its agent; its workers go with it."""
        self.daemon.process.send_signal(signal.SIGKILL)
        self.daemon.process.wait(10)


class Cluster:
    """Nodes as real processes.

    Args:
        initialize_head: start a head at once.
        connect: also connect this program to it.
        head_node_args: see `add_node`.
    """

    def __init__(
        self,
        initialize_head: bool = False,
        connect: bool = False,
        head_node_args: dict[str, Any] | None = None,
        shutdown_at_exit: bool = True,
    ) -> None:
        self._root = new_session_dir()
        self._secret_file = write_secret(self._root)
        self._control: Daemon | None = None
        self.head_node: ClusterNode | None = None
        self.worker_nodes: list[ClusterNode] = []
        self._connected = False
        if initialize_head:
            self.add_node(**(head_node_args or {}))
            if connect:
                self.connect()

    @property
    def address(self) -> str:
        """Address of the control store, for `init(address=...)`."""
        assert self._control is not None, "the cluster has no head yet: add_node() makes one"
        return str(self._control.ready["address"])

    @property
    def gcs_address(self) -> str:
        """The same under Ray's name."""
        return self.address

    @property
    def control_pid(self) -> int:
        """Process id of the control store."""
        assert self._control is not None
        return self._control.process.pid

    def connect(self, namespace: str | None = None) -> None:
        """Connects this program to the cluster."""
        from runtime import api

        api.init(address=self.address, namespace=namespace, ignore_reinit_error=True)
        self._connected = True

    def add_node(self, wait: bool = True, **node_args: Any) -> ClusterNode:
        """Starts a node; the first one is the head, with the control store.

        Args:
            wait: until the control store knows it.
            node_args: num_cpus, num_gpus, resources, labels, object_store_memory (bytes), memory (bytes).
        """
        is_head = self._control is None
        if self._control is None:
            self._control = start_control(self._root, self._secret_file)
        session_dir = self._root if is_head else new_session_dir()
        known = {"num_cpus", "num_gpus", "resources", "labels", "object_store_memory", "memory"}
        args = {name: value for name, value in node_args.items() if name in known and value is not None}
        args.setdefault("num_cpus", 1)
        args.setdefault("object_store_memory", 256 * 2**20)
        daemon = start_node(self.address, session_dir, self._secret_file, "127.0.0.1", head=is_head, **args)
        node = ClusterNode(daemon, session_dir)
        if is_head:
            self.head_node = node
        else:
            self.worker_nodes.append(node)
        return node

    def remove_node(self, node: ClusterNode, allow_graceful: bool = True) -> None:
        """Ends a node: asks its agent to stop, or kills it."""
        if allow_graceful:
            node.daemon.stop()
        else:
            node.kill()
        if node is self.head_node:
            self.head_node = None
        else:
            self.worker_nodes.remove(node)
            shutil.rmtree(node.session_dir, ignore_errors=True)

    def list_all_nodes(self) -> list[ClusterNode]:
        """The head first."""
        return [*([self.head_node] if self.head_node else []), *self.worker_nodes]

    def wait_for_nodes(self, timeout: float = 30) -> None:
        """Waits until the control store sees as many live nodes as were added.

        Raises:
            TimeoutError: it does not.
        """
        from runtime import api

        expected = {node.node_id for node in self.list_all_nodes()}
        deadline = time.monotonic() + timeout
        while True:
            alive = {row["NodeID"] for row in api.nodes() if row["Alive"]}
            if alive == expected:
                return
            if time.monotonic() > deadline:
                raise TimeoutError(f"{len(alive)} nodes are alive after {timeout} s, not {len(expected)}")
            time.sleep(0.02)

    def shutdown(self) -> None:
        """Ends every process of the cluster and removes its folders."""
        from runtime import api

        if self._connected:
            api.shutdown()
            self._connected = False
        nodes = self.list_all_nodes()
        for node in nodes:
            if node.daemon.process.poll() is None:
                node.daemon.process.terminate()
        for node in nodes:
            node.daemon.stop()
            shutil.rmtree(node.session_dir, ignore_errors=True)
        self.worker_nodes.clear()
        self.head_node = None
        if self._control is not None:
            self._control.stop()
            self._control = None
        shutil.rmtree(self._root, ignore_errors=True)
        parent = os.path.dirname(self._root)
        try:
            os.rmdir(parent)
        except OSError:
            pass  # other sessions live there
