"""Makes this machine a node of a cluster. Imports little: `up` runs it on every machine."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from typing import Any

from clusterctl import processes
from clusterctl.errors import CliError, Unreachable
from clusterctl.startup.order import JoinOrder, JoinToken
from clusterctl.startup.record import DaemonRecord, boot_id, remember, running
from runtime._node.options import NodeOptions
from runtime._session.coming_up import DaemonError, node_amounts
from runtime._system import files

from .session import secret_of, session_dir, sockets_dir, turn


def join(token: JoinToken, host: str = "") -> DaemonRecord:
    """Starts a node agent here that joins the cluster of a token; does nothing when it runs already.

    Args:
        host: address of this machine, for the other nodes; "": the one by which it reaches the head.

    Raises:
        CliError: as `start_worker`.
    """
    session = session_dir()
    secret_file = f"{session}/secret"
    files.replace(secret_file, token.secret.encode())
    order = JoinOrder(
        address=token.address,
        secret_file=secret_file,
        host=host or own_address(token.address),
        resources=token.resources,
        labels=token.labels,
        node_type=token.node_type,
        instance_id=token.instance_id,
    )
    return start_worker(order, session)


def own_address(control: str) -> str:
    """The address by which this machine reaches a head. Nothing is sent.

    Raises:
        Unreachable: there is no way there, or its name is not known.
    """
    host, _, port = control.rpartition(":")
    try:
        found = socket.getaddrinfo(host.strip("[]"), int(port), type=socket.SOCK_DGRAM)
        family, kind, protocol, _, address = found[0]
        with socket.socket(family, kind, protocol) as way:
            way.connect(address)
            return str(way.getsockname()[0])
    except (OSError, ValueError) as error:
        raise Unreachable(
            f"there is no way to the head at {control}: {error}", "Correct the address, or give --host."
        ) from error


def start_worker(order: JoinOrder, session: str = "") -> DaemonRecord:
    """Starts a node agent here that joins a cluster; does nothing when it runs already.

    Args:
        session: the session's folder; "": the machine's own, or a new one.

    Raises:
        CliError: it did not start or could not join; the message has its own words.
    """
    from runtime._session.daemons import start_node  # who becomes the agent needs none of it

    session = session or session_dir()
    with turn(session):
        found = running(session)
        if found is not None:
            return found
        options = node_options(order, session)
        try:
            daemon = start_node(
                options.control,
                session,
                options.secret_file,
                options.host,
                resources=options.resources,
                labels=options.labels,
                object_store_memory=options.store_bytes,
                instance_id=options.instance_id,
                node_type=options.node_type,
                sockets_dir=options.sockets_dir,
                detached=True,
            )
        except DaemonError as error:
            raise not_joined(options, error) from error
        return remembered(options, daemon.pid, daemon.ready)


def node_options(order: JoinOrder, session: str) -> NodeOptions:
    """What the node agent is told.

    Raises:
        CliError: the cluster's secret is not to be had, or the machine has not what it shall bring.
    """
    amounts = dict(order.resources)
    options = NodeOptions(
        control=order.address,
        session_dir=session,
        sockets_dir=sockets_dir(),
        secret_file=secret_of(session, order.secret_file),
        host=order.host,
        labels=order.labels,
        store_bytes=int(amounts.pop("object_store_memory", 0)),
        instance_id=order.instance_id,
        node_type=order.node_type,
    )
    try:
        options.resources = node_amounts(None, None, None, amounts)
    except ValueError as error:
        raise not_joined(options, error) from error
    return options


def not_joined(options: NodeOptions, why: object) -> CliError:
    """What is said of an agent that did not come up."""
    return CliError(f"the node could not join {options.control}: {why}")


def remembered(options: NodeOptions, pid: int, ready: Mapping[str, Any]) -> DaemonRecord:
    """Writes down that the agent is up; returns its record."""
    record = DaemonRecord(
        pid=pid,
        start_ticks=processes.start_ticks(pid) or -1,
        role="worker",
        control_address=options.control,
        node_id=str(ready["node_id"]),
        session_dir=options.session_dir,
        secret_file=options.secret_file,
        boot_id=boot_id(),
    )
    remember(options.session_dir, record)
    return record
