"""Starting the daemons as processes of this host, and their ends."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from runtime._core.isolation import Isolation
from runtime._node import registry
from runtime._node.child import wait_for_end
from runtime._node.zygote_spawn import daemon_environment
from runtime._system import files, settings

from .coming_up import START_TIMEOUT_S, DaemonError, end, log_file, node_amounts, wait_ready
from .directories import new_session_dir

__all__ = [
    "Daemon",
    "DaemonError",
    "settings_environment",
    "start_control",
    "start_local",
    "start_node",
    "start_remote_drivers",
]


def _hold_nothing() -> None:
    """The lifeline of a daemon that has none."""


class Daemon(msgspec.Struct):
    """A daemon that is up. `ready` is what it said; `log_path` what it says.

    Unless it was started `detached`, it ends with this process, and when this object is gone.
    """

    process: subprocess.Popen[bytes]
    ready: dict[str, Any]
    log_path: str
    cut_lifeline: Callable[[], object] = _hold_nothing

    @property
    def pid(self) -> int:
        return self.process.pid

    def stop(self, timeout_s: float = 5.0) -> None:
        """Asks it to end, and kills it when it has not within `timeout_s`. Repeating it does nothing."""
        if self.process.poll() is None:
            self.process.terminate()
            if not wait_for_end(self.process, timeout_s):
                self.kill()
        self.cut_lifeline()

    def kill(self) -> None:
        """Ends it at once."""
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self.cut_lifeline()


def start_local(
    *,
    num_cpus: float | None = None,
    num_gpus: float | None = None,
    resources: Mapping[str, float] | None = None,
    labels: Mapping[str, str] | None = None,
    object_store_memory: int | None = None,
    memory: float | None = None,
    host: str = "127.0.0.1",
    node_name: str = "",
    session_dir: str | None = None,
    keep_logs: bool = False,
    env_vars: Mapping[str, str] | None = None,
    isolation: Isolation | None = None,
    timeout_s: float = START_TIMEOUT_S,
) -> Daemon:
    """Starts a cluster of one node in one process. It ends, and leaves nothing, when its first driver has
    left.

    Args:
        env_vars: added to the environment of its processes.
        isolation: control groups for its processes.

    Raises:
        DaemonError: it did not come up.
    """
    amounts = node_amounts(num_cpus, num_gpus, memory, resources)
    session = session_dir or new_session_dir()
    arguments = ["--session-dir", session, "--resources", json.dumps(amounts)]
    arguments += ["--labels", json.dumps(dict(labels or {}))]
    arguments += ["--store-bytes", str(int(object_store_memory or 0))]
    arguments += ["--host", host, "--name", node_name]
    if isolation is not None:
        arguments += ["--isolation", msgspec.json.encode(isolation).decode()]
    if keep_logs:
        arguments.append("--keep-logs")
    try:
        return start_module(
            "runtime._session.local_node", arguments, session, "agent", True, timeout_s, env_vars
        )
    except DaemonError:
        if session_dir is None:
            files.remove_tree(session)
            registry.remove_empty(os.path.dirname(session))
        raise


def start_control(
    session_dir: str,
    secret_file: str,
    host: str = "127.0.0.1",
    port: int = 0,
    state: str | None = None,
    detached: bool = False,
    cluster_id: str = "",
    timeout_s: float = START_TIMEOUT_S,
) -> Daemon:
    """Starts a control store. `ready` holds "address" and "cluster_id".

    Args:
        session_dir: takes its log.
        secret_file: see `write_secret`.
        host, port: where to listen; port 0 is any free one.
        state: SQLite file that survives restarts; default: one in the session directory.
        detached: outlive the caller.
        cluster_id: for a new cluster; default: random.
        timeout_s: how long it may take to come up.

    Raises:
        DaemonError: it did not come up.
    """
    arguments = ["--session-dir", session_dir, "--host", host, "--port", str(port)]
    arguments += ["--state", state or os.path.join(session_dir, "control.sqlite")]
    arguments += ["--secret-file", secret_file]
    if cluster_id:
        arguments += ["--cluster-id", cluster_id]
    return start_module("runtime._control", arguments, session_dir, "control", detached, timeout_s)


def start_node(
    control_address: str,
    session_dir: str,
    secret_file: str,
    host: str = "127.0.0.1",
    *,
    num_cpus: float | None = None,
    num_gpus: float | None = None,
    resources: Mapping[str, float] | None = None,
    labels: Mapping[str, str] | None = None,
    object_store_memory: int | None = None,
    memory: float | None = None,
    node_name: str = "",
    head: bool = False,
    instance_id: str = "",
    node_type: str = "",
    node_id: str = "",
    remove_session_dir: bool = False,
    control_reconnect_s: float | None = None,
    zygote_delay_s: float = 0.0,
    sockets_dir: str = "",
    detached: bool = False,
    env_vars: Mapping[str, str] | None = None,
    timeout_s: float = START_TIMEOUT_S,
) -> Daemon:
    """Starts a node agent. `ready` holds "node_id", "unix_path", "address" and "session_dir".

    Args:
        zygote_delay_s, sockets_dir: see `NodeOptions`.
        env_vars: added to the environment of the agent and of all that it starts.

    Raises:
        DaemonError: it did not come up.
    """
    arguments = _node_arguments(
        control_address,
        session_dir,
        secret_file,
        host,
        node_amounts(num_cpus, num_gpus, memory, resources),
        labels or {},
        object_store_memory,
        {
            "--instance-id": instance_id,
            "--node-type": node_type,
            "--node-id": node_id,
            "--name": node_name,
            "--control-reconnect-s": "" if control_reconnect_s is None else str(control_reconnect_s),
            "--zygote-delay-s": str(zygote_delay_s or ""),
            "--sockets-dir": sockets_dir,
        },
    )
    if head:
        arguments.append("--head")
    if remove_session_dir:
        arguments.append("--remove-session-dir")
    return start_module("runtime._node", arguments, session_dir, "agent", detached, timeout_s, env_vars)


def start_remote_drivers(
    control_address: str,
    session_dir: str,
    secret_file: str,
    host: str = "127.0.0.1",
    port: int = 0,
    timeout_s: float = START_TIMEOUT_S,
) -> Daemon:
    """Starts the server for remote drivers on a machine with a node agent. `ready` holds "address".

    Raises:
        DaemonError: it did not come up.
    """
    arguments = ["--control", control_address, "--secret-file", secret_file]
    arguments += ["--host", host, "--port", str(port)]
    return start_module(
        "runtime._remote_driver.server", arguments, session_dir, "remote-drivers", False, timeout_s
    )


def settings_environment(
    system_config: Mapping[str, Any] | None = None, spilling_directory: str | None = None
) -> dict[str, str]:
    """Ray's `_system_config` and `object_spilling_directory` as environment variables."""
    environment = {
        f"RAY_{name}": value if isinstance(value, str) else json.dumps(value)
        for name, value in (system_config or {}).items()
    }
    if spilling_directory:
        environment[settings.SPILLING_DIRECTORY.name] = os.path.abspath(spilling_directory)
    return environment


def _node_arguments(
    control_address: str,
    session_dir: str,
    secret_file: str,
    host: str,
    amounts: Mapping[str, float],
    labels: Mapping[str, str],
    object_store_memory: int | None,
    named: Mapping[str, str],
) -> list[str]:
    """The arguments of `runtime._node`, with those of `named` that are not empty."""
    arguments = ["--control", control_address, "--session-dir", session_dir, "--host", host]
    arguments += ["--resources", json.dumps(amounts), "--labels", json.dumps(dict(labels))]
    arguments += ["--store-bytes", str(int(object_store_memory or 0)), "--secret-file", secret_file]
    return arguments + [word for name, value in named.items() if value for word in (name, value)]


def start_module(
    module: str,
    arguments: Sequence[str],
    session_dir: str,
    log_name: str,
    detached: bool,
    timeout_s: float,
    env_vars: Mapping[str, str] | None = None,
) -> Daemon:
    """Starts a daemon's module and waits for its word.

    A daemon always has its own process group, so that a Ctrl-C meant for the caller does not reach it.
    """
    log_path = log_file(session_dir, log_name)
    words, words_in = os.pipe()
    lifeline, ours = os.pipe()
    command = [module] if detached else ["runtime._session.supervised", module]
    try:
        with open(log_path, "ab") as output:
            process = subprocess.Popen(
                [sys.executable, "-P", "-m", *command, *arguments, "--ready-fd", str(words_in)],
                stdin=subprocess.DEVNULL if detached else lifeline,
                stdout=output,
                stderr=output,
                pass_fds=[words_in],
                start_new_session=detached,
                process_group=None if detached else 0,
                cwd="/",
                env={**daemon_environment(), **(env_vars or {})},
            )
    except BaseException:
        os.close(words)
        os.close(ours)
        raise
    finally:
        os.close(words_in)
        os.close(lifeline)
    cut = weakref.finalize(process, os.close, ours)
    try:
        ready = wait_ready(process, words, log_path, timeout_s)
    except DaemonError:
        end(process)
        cut()
        raise
    except BaseException:
        process.kill()
        process.wait()
        cut()
        raise
    return Daemon(process, ready, log_path, cut)
