"""What the head does first, before its own heavy imports: take the API's port and start the control store,
which comes up meanwhile. Imports little."""

from __future__ import annotations

import errno
import os
import socket
import time

import msgspec

from clusterctl.startup.config import HeadConfig
from clusterctl.startup.record import read
from runtime._session.daemons import Daemon, start_control

_LOOPBACK = "127.0.0.1"
_FREE_S = 10.0
_POLL_S = 0.1


class HeadError(Exception):
    """The head cannot come up, or cannot go on."""


def with_ports_of_before(config: HeadConfig, session_dir: str) -> HeadConfig:
    """The configuration of a head that crashed, with the ports that it had: workers and operators know them. A port
    that another program has taken since is left to chance again."""
    before = read(session_dir)
    if before is None:
        return config
    known = before.control_address, before.api_url, before.client_address
    control, api, client = map(_port_of, known)
    return msgspec.structs.replace(
        config,
        control_port=config.control_port or _free(config.host, control),
        api_port=config.api_port or _free(_LOOPBACK, api),
        client_port=config.client_port or _free(config.client_host, client),
    )


def _port_of(address: str) -> int:
    port = address.rpartition(":")[2]
    return int(port) if port.isdigit() else 0


def _free(host: str, port: int) -> int:
    """The port when it can be listened at, else 0. What the crashed head left there ends within moments."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    deadline = time.monotonic() + _FREE_S
    while port:
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((host.strip("[]"), port))
                return port
            except OSError:
                if time.monotonic() > deadline:
                    break
        time.sleep(_POLL_S)
    return 0


def listen(config: HeadConfig) -> socket.socket:
    """The API's listener, on the loopback of the machine: who is elsewhere comes through SSH.

    Raises:
        HeadError: its port is in use.
    """
    host, port = _LOOPBACK, config.api_port
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    # Else the body of an answer waits until its head is acknowledged, which takes 40 ms. What is accepted inherits it.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    try:
        listener.bind((host, port))
    except OSError as error:
        listener.close()
        if error.errno == errno.EADDRINUSE:
            raise HeadError(
                f"port {port} of {host} is in use by another program: choose another for ports.api, "
                "or 0 for any free one"
            ) from error
        raise HeadError(f"the API cannot listen on {host}:{port}: {error.strerror}") from error
    listener.listen(128)
    listener.setblocking(False)
    return listener


def state_file(session_dir: str) -> str:
    """Where the control store keeps its state."""
    return os.path.join(session_dir, "control.sqlite")


def control_store(config: HeadConfig, secret_file: str, session_dir: str, port: int) -> Daemon:
    """Starts the control store on the head's state.

    Raises:
        DaemonError: it does not come up.
    """
    return start_control(
        session_dir,
        secret_file,
        host=config.host,
        port=port,
        state=state_file(session_dir),
        cluster_id=config.cluster_id,
    )


def first_control_store(config: HeadConfig, secret_file: str, session_dir: str) -> Daemon:
    """The control store of a new life of the head.

    Raises:
        DaemonError: it does not come up.
        StorageError: the state is damaged.
    """
    path = state_file(session_dir)
    if os.path.exists(path):
        from clusterctl.head.state import begin_new_life

        begin_new_life(path)
    return control_store(config, secret_file, session_dir, config.control_port)
