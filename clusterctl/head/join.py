"""`python -P -m clusterctl.head.join ORDER`: makes a machine a node, as `clusterctl start --address` does.

It is what `up` runs on every worker, so it costs little: it imports no command line, and forks the node agent instead
of starting another Python.
"""

from __future__ import annotations

import os
import sys
from typing import NoReturn

import msgspec

from clusterctl.errors import CliError
from clusterctl.head.worker import start_worker


class JoinOrder(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """How to join; travels as JSON.

    Attributes:
        address: HOST:PORT of the head's control store.
        secret_file: holds the cluster's secret.
        host: address of this machine, for the other nodes.
        resources: what this node brings.
        instance_id: the autoscaler's name of this machine.
    """

    address: str
    secret_file: str
    host: str
    resources: dict[str, float] = {}
    labels: dict[str, str] = {}
    node_type: str = ""
    instance_id: str = ""


def main() -> NoReturn:
    """Prints the daemon's record, and ends this process."""
    order = msgspec.json.decode(sys.argv[1], type=JoinOrder)
    try:
        record = start_worker(
            order.address,
            order.secret_file,
            order.host,
            order.resources,
            order.labels,
            order.node_type,
            order.instance_id,
            forked=True,
        )
    except CliError as error:
        sys.exit(f"error: {error}")
    print(msgspec.json.encode(record).decode(), flush=True)
    os._exit(0)  # nothing is left to be finished


if __name__ == "__main__":
    main()
