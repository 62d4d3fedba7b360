"""`python -P -m clusterctl.head.join`: makes a machine a node, as `clusterctl start --address` does.

It is what `up` runs on every worker, so it costs little: it imports no command line, and forks the node agent instead
of starting another Python.
"""

from __future__ import annotations

import argparse
import json
import sys

import msgspec

from clusterctl.errors import CliError
from clusterctl.head.daemons import start_worker


def main() -> int:
    """Prints the daemon's record; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m clusterctl.head.join", description=__doc__)
    parser.add_argument("--address", required=True, help="HOST:PORT of the head's control store")
    parser.add_argument("--secret-file", required=True, help="file that holds the cluster's secret")
    parser.add_argument("--host", required=True, help="address of this machine, for the other nodes")
    parser.add_argument("--resources", type=json.loads, default={}, help="JSON: what this node brings")
    parser.add_argument("--labels", type=json.loads, default={}, help="JSON: labels of this node")
    parser.add_argument("--node-type", default="", help="its node type")
    parser.add_argument("--instance-id", default="", help="the autoscaler's name of this machine")
    given = parser.parse_args()
    try:
        record = start_worker(
            given.address,
            given.secret_file,
            given.host,
            given.resources,
            given.labels,
            given.node_type,
            given.instance_id,
            forked=True,
        )
    except CliError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    print(msgspec.json.encode(record).decode())
    return 0


if __name__ == "__main__":
    sys.exit(main())
