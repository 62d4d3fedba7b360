"""A cluster of several nodes on this machine, each with its own processes, for tests and experiments."""

from __future__ import annotations

import atexit
import os
import shutil
import signal
import subprocess
import time
import weakref
from collections.abc import Mapping
from typing import Any

from runtime import api
from runtime._api.ray_context import address_info
from runtime._process.core_worker import current_or_none
from runtime._session import (
    Daemon,
    new_session_dir,
    settings_environment,
    start_control,
    start_node,
    write_secret,
)
from runtime._session.ask import ask_control
from runtime._session.autoscaling import AutoscalingCluster
from runtime._transport.channel import CallError
from runtime._wire.messages.control import GetNodes, Nodes

__all__ = ["AutoscalingCluster", "Cluster", "ClusterNode", "ProcessInfo"]

RAYLET = "raylet"
GCS_SERVER = "gcs_server"
DEFAULT_STORE_BYTES = 150 * 2**20
DEFAULT_CONTROL_RECONNECT_S = 60.0

_USED = frozenset(
    "num_cpus num_gpus resources labels object_store_memory memory node_ip_address node_name env_vars "
    "_system_config gcs_server_port object_spilling_directory".split()
)
# Known to Ray's nodes and without a meaning here: ports and sockets are chosen freely, and there is no Redis.
_WITHOUT_MEANING = frozenset(
    "redis_address gcs_address redis_port redis_shard_ports object_manager_port node_manager_port min_worker_port "
    "max_worker_port worker_port_list ray_client_server_port redirect_output log_to_stderr external_addresses "
    "num_redis_shards redis_max_clients redis_username redis_password plasma_directory "
    "worker_path setup_worker_path huge_pages include_dashboard dashboard_host dashboard_port "
    "dashboard_agent_listen_port runtime_env_agent_port plasma_store_socket_name raylet_socket_name temp_dir "
    "runtime_env_dir_name include_log_monitor autoscaling_config ray_debugger_external enable_object_reconstruction "
    "metrics_agent_port metrics_export_port tracing_startup_hook no_monitor session_name webui cluster_id node_id "
    "resource_isolation_config proxy_server_url dashboard_agent_grpc_port".split()
)


class ProcessInfo:
    """One process of a node; `process` is its `subprocess.Popen`."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.process = process


class ClusterNode:
    """One node: its agent and the agent's child processes; on the head also the control store.

    `all_processes` maps "raylet" (the node agent) and "gcs_server" (the control store) to their processes. Each
    can be killed separately.
    """

    def __init__(self, cluster: Cluster, daemon: Daemon, session_dir: str, head: bool, host: str) -> None:
        self._cluster = cluster
        self.daemon = daemon
        self.session_dir = session_dir
        self.head = head
        self.node_ip_address = host
        self.node_id: str = daemon.ready["node_id"]
        self.unix_path: str = daemon.ready["unix_path"]
        self._removed = False

    # ------------------------------------------------------------ what it is

    @property
    def unique_id(self) -> str:
        """The node's id in hex."""
        return self.node_id

    @property
    def pid(self) -> int:
        """Process id of the node agent."""
        return self.daemon.process.pid

    @property
    def gcs_address(self) -> str | None:
        """Address of the control store."""
        return self._cluster.address

    @property
    def address(self) -> str | None:
        """For `init(address=...)`."""
        return self._cluster.address

    redis_address = None
    redis_password = ""
    webui_url = ""

    @property
    def raylet_socket_name(self) -> str:
        """The node agent's Unix socket."""
        return self.unix_path

    @property
    def plasma_store_socket_name(self) -> str:
        """A name that is unique to this node's object store, which has no socket of its own."""
        return self.unix_path

    @property
    def node_manager_port(self) -> int:
        """Port of the node agent."""
        return int(self.daemon.ready["address"].rpartition(":")[2])

    @property
    def address_info(self) -> dict[str, Any]:
        """The addresses of a node, as `init` returns them."""
        return address_info(
            self.node_id,
            self.node_ip_address,
            self.plasma_store_socket_name,
            self.raylet_socket_name,
            self.session_dir,
            self.address,
        )

    @property
    def session_name(self) -> str:
        """Name of its session's folder."""
        return os.path.basename(self.session_dir)

    def is_head(self) -> bool:
        """Whether the control store runs on this node."""
        return self.head

    def get_session_dir_path(self) -> str:
        """Its folder."""
        return self.session_dir

    def get_logs_dir_path(self) -> str:
        """Where its logs are."""
        return os.path.join(self.session_dir, "logs")

    def get_sockets_dir_path(self) -> str:
        """Where its sockets are."""
        return os.path.join(self.session_dir, "sockets")

    def get_temp_dir_path(self) -> str:
        """The folder of all sessions."""
        return os.path.dirname(self.session_dir)

    # ------------------------------------------------------------ its processes

    def _daemons(self) -> dict[str, Daemon]:
        if self._removed:
            return {}
        control = self._cluster._control if self.head else None
        return {RAYLET: self.daemon} | ({GCS_SERVER: control} if control is not None else {})

    @property
    def all_processes(self) -> dict[str, list[ProcessInfo]]:
        """Its processes by kind."""
        return {kind: [ProcessInfo(daemon.process)] for kind, daemon in self._daemons().items()}

    def live_processes(self) -> list[tuple[str, subprocess.Popen[bytes]]]:
        """Those that run, with their kinds."""
        return [(kind, d.process) for kind, d in self._daemons().items() if d.process.poll() is None]

    def dead_processes(self) -> list[tuple[str, subprocess.Popen[bytes]]]:
        """Those that have ended, with their kinds."""
        return [(kind, d.process) for kind, d in self._daemons().items() if d.process.poll() is not None]

    def any_processes_alive(self) -> bool:
        """Whether any of them runs."""
        return bool(self.live_processes())

    def remaining_processes_alive(self) -> bool:
        """Whether none of them has ended."""
        return not self.dead_processes()

    def kill(self) -> None:
        """Ends the node as a power failure would: kills its agent, and so its workers."""
        self.daemon.process.send_signal(signal.SIGKILL)
        self.daemon.process.wait(10)

    def kill_raylet(self, check_alive: bool = True) -> None:
        """Kills the node agent.

        Raises:
            RuntimeError: it has ended already (with `check_alive`).
        """
        self._check_alive(self.daemon, "raylet", check_alive)
        self.daemon.kill()

    def kill_gcs_server(self, check_alive: bool = True, wait: bool = False) -> None:
        """Kills the control store; see `start_gcs_server`.

        Raises:
            RuntimeError: it has ended already (with `check_alive`), or this is not the head.
        """
        control = self._head_control()
        self._check_alive(control, "gcs_server", check_alive)
        control.kill()

    def start_gcs_server(self) -> None:
        """Restarts the control store at the same address with its saved state."""
        self._head_control()
        self._cluster._restart_control()

    def kill_all_processes(
        self, check_alive: bool = True, allow_graceful: bool = False, wait: bool = False
    ) -> None:
        """Ends all of its processes; with `allow_graceful` they may clean up."""
        for kind, daemon in self._daemons().items():
            self._check_alive(daemon, kind, check_alive)
            if allow_graceful:
                daemon.stop()
            else:
                daemon.kill()

    def destroy_external_storage(self) -> None:
        """Does nothing: spilled objects are in the node's folder and are removed with it."""

    def _head_control(self) -> Daemon:
        control = self._cluster._control
        if not self.head or control is None:
            raise RuntimeError(f"Node {self.node_id[:12]} is not the head: it has no control store.")
        return control

    def _check_alive(self, daemon: Daemon, kind: str, check_alive: bool) -> None:
        if check_alive and daemon.process.poll() is not None:
            raise RuntimeError(
                f"Attempting to kill a process of type '{kind}' of node {self.node_id[:12]}, "
                "but this process is already dead."
            )

    def __repr__(self) -> str:
        return f"ClusterNode({self.node_id[:12]}, {'head' if self.head else 'worker'}, pid={self.pid})"


class Cluster:
    """Nodes as real processes of this machine.

    Args:
        initialize_head: start a head at once.
        connect: also connect this program to it.
        head_node_args: see `add_node`.
        shutdown_at_exit: end everything when the program ends.

    Raises:
        RuntimeError: `connect` without a head.
    """

    def __init__(
        self,
        initialize_head: bool = False,
        connect: bool = False,
        head_node_args: Mapping[str, Any] | None = None,
        shutdown_at_exit: bool = True,
    ) -> None:
        self._root = ""
        self._secret_file = ""
        self._control: Daemon | None = None
        self._control_reconnect_s = DEFAULT_CONTROL_RECONNECT_S
        self._settings: dict[str, Any] = {}
        self.head_node: ClusterNode | None = None
        self.worker_nodes: list[ClusterNode] = []
        self.connected = False
        self.redis_address = None
        self.webui_url = ""
        if connect and not initialize_head:
            raise RuntimeError("Cannot connect to a cluster that is not initialized: it has no head yet.")
        if shutdown_at_exit:
            atexit.register(_shutdown_at_exit, weakref.ref(self))
        if initialize_head:
            try:
                self.add_node(**(head_node_args or {}))
                if connect:
                    self.connect()
            except BaseException:
                self.shutdown()
                raise

    @property
    def address(self) -> str | None:
        """Address of the control store, for `init(address=...)`; None without a head."""
        return str(self._control.ready["address"]) if self._control is not None else None

    @property
    def gcs_address(self) -> str | None:
        """The same under Ray's name."""
        return self.address

    @property
    def control_pid(self) -> int:
        """Process id of the control store."""
        assert self._control is not None
        return self._control.process.pid

    def connect(self, namespace: str | None = None) -> None:
        """Connects this program to the cluster."""
        assert self.address is not None, "the cluster has no head yet: add_node() makes one"
        assert not self.connected, "this program is connected to the cluster already"
        api.init(address=self.address, namespace=namespace, ignore_reinit_error=True)
        self.connected = True

    def add_node(self, wait: bool = True, **node_args: Any) -> ClusterNode:
        """Starts a node; the first one is the head, with the control store. Returns once it has joined.

        Args:
            wait: without effect; the node has always joined when this returns.
            node_args: num_cpus (default 1), num_gpus, resources, labels, object_store_memory (bytes, default
                150 MiB), memory (bytes), node_ip_address (a loopback address), node_name (what `nodes` shows),
                env_vars (of the node's processes), _system_config (a dict, of the head, for all nodes; unknown
                settings are ignored), object_spilling_directory. Other arguments of Ray's nodes are accepted and
                ignored.

        Raises:
            TypeError: an argument does not exist in Ray either.
            DaemonError: the node did not come up.
        """
        unknown = node_args.keys() - _USED - _WITHOUT_MEANING
        if unknown:
            raise TypeError(f"add_node() has no argument {', '.join(sorted(unknown))}.")
        args = {name: node_args[name] for name in _USED & node_args.keys() if node_args[name] is not None}
        host = args.pop("node_ip_address", "127.0.0.1")
        env_vars = {name: str(value) for name, value in args.pop("env_vars", {}).items()}
        port = int(args.pop("gcs_server_port", 0))
        settings = args.pop("_system_config", {})
        is_head = self.head_node is None and self._control is None
        spilling_directory = args.pop("object_spilling_directory", None)
        if is_head:
            self._begin(port, settings)
            self._settings = settings
        env_vars = {**settings_environment(self._settings, spilling_directory), **env_vars}
        assert self.address is not None
        session_dir = self._root if is_head else new_session_dir()
        args.setdefault("num_cpus", 1)
        args.setdefault("num_gpus", 0)
        args.setdefault("object_store_memory", DEFAULT_STORE_BYTES)
        daemon = start_node(
            self.address,
            session_dir,
            self._secret_file,
            host,
            head=is_head,
            control_reconnect_s=self._control_reconnect_s,
            env_vars=env_vars,
            **args,
        )
        node = ClusterNode(self, daemon, session_dir, is_head, host)
        if is_head:
            self.head_node = node
        else:
            self.worker_nodes.append(node)
        return node

    def remove_node(self, node: ClusterNode, allow_graceful: bool = True) -> None:
        """Ends a node: asks its agent to stop, or kills it.

        Raises:
            ValueError: this program is connected to the cluster through that node; it is disconnected.
        """
        core = current_or_none()
        if core is not None and core.session.node_id.hex() == node.node_id:
            api.shutdown()
            raise ValueError(
                "Removing a node that is connected to this program would break it: remove another one, or call "
                "shutdown() first."
            )
        node.kill_all_processes(check_alive=False, allow_graceful=allow_graceful)
        node._removed = True
        if node is self.head_node:
            self.head_node = None
            self._control = None
            shutil.rmtree(node.session_dir, ignore_errors=True)
        elif node in self.worker_nodes:
            self.worker_nodes.remove(node)
            shutil.rmtree(node.session_dir, ignore_errors=True)

    def list_all_nodes(self) -> list[ClusterNode]:
        """The head first."""
        return [*([self.head_node] if self.head_node else []), *self.worker_nodes]

    def remaining_processes_alive(self) -> bool:
        """Whether no process of any node has ended."""
        return all(node.remaining_processes_alive() for node in self.list_all_nodes())

    def wait_for_nodes(self, timeout: float = 30) -> None:
        """Waits until the control store sees as many live nodes as were added and not removed.

        Raises:
            TimeoutError: the nodes did not join or leave in time.
        """
        expected = len(self.list_all_nodes())
        deadline = time.monotonic() + timeout
        alive = -1
        while True:
            try:
                alive = len(self._live_node_ids())
            except CallError:
                pass  # the control store is being restarted
            if alive == expected:
                return
            if time.monotonic() > deadline:
                raise TimeoutError(
                    f"Timed out while waiting for nodes to join: {alive} are alive after {timeout} s, not {expected}."
                )
            time.sleep(0.05)

    def shutdown(self) -> None:
        """Ends every process of the cluster and removes its folders."""
        if self.connected:
            api.shutdown()
            self.connected = False
        nodes = self.list_all_nodes()
        for node in nodes:
            if node.daemon.process.poll() is None:
                node.daemon.process.terminate()
        for node in nodes:
            node.daemon.stop()
            node._removed = True
            shutil.rmtree(node.session_dir, ignore_errors=True)
        self.worker_nodes.clear()
        self.head_node = None
        if self._control is not None:
            self._control.stop()
            self._control = None
        if self._root:
            shutil.rmtree(self._root, ignore_errors=True)
            try:
                os.rmdir(os.path.dirname(self._root))
            except OSError:
                pass  # other sessions live there
            self._root = ""

    # ------------------------------------------------------------ its parts

    def _begin(self, port: int, settings: Mapping[str, Any]) -> None:
        self._root = new_session_dir()
        self._secret_file = write_secret(self._root)
        self._control_reconnect_s = float(
            settings.get("gcs_rpc_server_reconnect_timeout_s", DEFAULT_CONTROL_RECONNECT_S)
        )
        self._control = start_control(self._root, self._secret_file, port=port)

    def _restart_control(self) -> None:
        assert self._control is not None
        self._control.kill()
        port = int(self._control.ready["address"].rpartition(":")[2])
        self._control = start_control(self._root, self._secret_file, port=port)

    def _live_node_ids(self) -> list[str]:
        if self.address is None:
            return []
        with open(self._secret_file, "rb") as file:
            secret = file.read().strip()
        reply = ask_control(self.address, secret, GetNodes(), 5.0)
        assert isinstance(reply, Nodes)
        return [node.node_id.hex() for node in reply.nodes if node.state != "DEAD"]


def _shutdown_at_exit(cluster: weakref.ref[Cluster]) -> None:
    from runtime import api

    alive = cluster()
    if alive is not None:
        api.shutdown()  # clients disconnect before the cluster ends
        alive.shutdown()
