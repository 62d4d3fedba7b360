"""Makes this machine a node of a cluster. Imports little: `up` runs it on every machine."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from clusterctl import processes
from clusterctl.errors import CliError
from runtime._session.coming_up import DaemonError
from runtime._session.forking_node import fork_node

from .record import DaemonRecord, remember, running
from .session import secret_of, session_dir, turn


def start_worker(
    address: str,
    secret_file: str,
    host: str,
    resources: Mapping[str, float],
    labels: Mapping[str, str],
    node_type: str,
    instance_id: str,
    forked: bool = False,
) -> DaemonRecord:
    """Starts a node agent here that joins a cluster; does nothing when it runs already.

    Args:
        secret_file: the cluster's secret; `~` is the home directory.
        instance_id: the autoscaler's name of this machine.
        forked: it is a fork of this process, which must have one thread and little in memory.

    Raises:
        CliError: it did not start or could not join; the message has its own words.
    """
    session = session_dir()
    with turn(session):
        found = running(session)
        if found is not None:
            return found
        secret_file = secret_of(session, secret_file)
        amounts = dict(resources)
        store = amounts.pop("object_store_memory", None)
        options: dict[str, Any] = {
            "resources": amounts,
            "labels": labels,
            "object_store_memory": None if store is None else int(store),
            "instance_id": instance_id,
            "node_type": node_type,
        }
        try:
            if forked:
                pid, ready = fork_node(address, session, secret_file, host, **options)
            else:
                from runtime._session.daemons import start_node  # imports more

                daemon = start_node(address, session, secret_file, host, detached=True, **options)
                pid, ready = daemon.pid, daemon.ready
        except DaemonError as error:
            raise CliError(f"the node could not join {address}: {error}") from error
        record = DaemonRecord(
            pid=pid,
            start_ticks=processes.start_ticks(pid) or -1,
            role="worker",
            control_address=address,
            node_id=str(ready["node_id"]),
            session_dir=session,
            secret_file=secret_file,
        )
        remember(session, record)
        return record
