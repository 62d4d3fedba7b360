"""Makes this machine a node of a cluster. Imports little: `up` runs it on every machine."""

from __future__ import annotations

from typing import Any

from clusterctl import processes
from clusterctl.errors import CliError
from runtime._session.coming_up import DaemonError
from runtime._session.forking_node import fork_node

from .order import JoinOrder
from .record import DaemonRecord, remember, running
from .session import secret_of, session_dir, turn


def start_worker(order: JoinOrder, forked: bool = False) -> DaemonRecord:
    """Starts a node agent here that joins a cluster; does nothing when it runs already.

    Args:
        forked: it is a fork of this process, which must have one thread and little in memory.

    Raises:
        CliError: it did not start or could not join; the message has its own words.
    """
    session = session_dir()
    with turn(session):
        found = running(session)
        if found is not None:
            return found
        secret_file = secret_of(session, order.secret_file)
        amounts = dict(order.resources)
        store = amounts.pop("object_store_memory", None)
        options: dict[str, Any] = {
            "resources": amounts,
            "labels": order.labels,
            "object_store_memory": None if store is None else int(store),
            "instance_id": order.instance_id,
            "node_type": order.node_type,
        }
        try:
            if forked:
                pid, ready = fork_node(order.address, session, secret_file, order.host, **options)
            else:
                from runtime._session.daemons import start_node  # imports more

                daemon = start_node(order.address, session, secret_file, order.host, detached=True, **options)
                pid, ready = daemon.pid, daemon.ready
        except (DaemonError, ValueError) as error:
            raise CliError(f"the node could not join {order.address}: {error}") from error
        record = DaemonRecord(
            pid=pid,
            start_ticks=processes.start_ticks(pid) or -1,
            role="worker",
            control_address=order.address,
            node_id=str(ready["node_id"]),
            session_dir=session,
            secret_file=secret_file,
        )
        remember(session, record)
        return record
