"""`clusterctl node list|exec|token`; `node logs` is `logs`."""

from __future__ import annotations

from typing import Annotated

import typer

from clusterctl import output

from .options import Cluster, Json, Which


def list_nodes(which: Which = None, cluster: Cluster = None, json: Json = False) -> None:
    """Lists the nodes of a cluster, with what they have, what of it is in use, and how long they have been idle.

    The first column is the id that `node exec`, `node logs` and --node take.

    \b
      clusterctl node list training
      clusterctl node list --json | jq -r '.[].instance_id'
    """
    from clusterctl.status_view import node_lines, nodes

    from .opened_cluster import label, open_cluster

    opened = open_cluster(cluster or which)
    if not opened.has_our_head:
        machines = [
            {"instance_id": label(m), "node_type": m.node_type, "state": m.state.value, "address": m.address}
            for m in opened.machines()
        ]
        if json:
            output.as_json(machines)
            return
        rows = [tuple(str(word) for word in machine.values()) for machine in machines]
        for line in output.table(("node", "type", "state", "address"), rows):
            output.say(line)
        return
    report = opened.api().request("GET", "/api/cluster_status", patience_s=1.0).json()
    if json:
        output.as_json(nodes(report))
        return
    for line in node_lines(report):
        output.say(line)


def exec_node(
    node: Annotated[str, typer.Argument(help="A machine or instance id, an address, or `head`.")],
    command: Annotated[
        list[str], typer.Argument(metavar="COMMAND...", help="One string for a shell, or words.")
    ],
    cluster: Cluster = None,
    timeout: Annotated[float | None, typer.Option(help="Kill the command after this many seconds.")] = None,
) -> None:
    """Runs a command on one node, as `clusterctl exec --node NODE` does, and exits with its status.

    \b
      clusterctl node exec 3a56d39878 'df -h /'
      clusterctl node exec training head -- python -c 'print(1)'
    """
    from .execute import execute

    words = command[1:] if len(command) > 1 and command[0] == "--" else command
    execute(words, cluster=cluster, node=node, timeout=timeout)


def print_token() -> None:
    """Prints what another machine joins by, on the machine of the head: its address and the cluster's secret, as one
    string. Who has it may do anything on the cluster.

    The head must be started with --host, an address that the other machine reaches.

    \b
      clusterctl start --head --host 10.0.0.1
      export CLUSTERCTL_JOIN_TOKEN="$(clusterctl node token)"   give it to the other machine, and there:
      clusterctl start --block
    """
    from pathlib import Path

    from clusterctl.errors import NotFound
    from clusterctl.head import daemons
    from clusterctl.startup.order import JoinToken

    record = daemons.head_here()
    if record is None:
        raise NotFound(
            "no head runs on this machine", "Run it on the head's: clusterctl exec 'clusterctl node token'"
        )
    secret = Path(record.secret_file).read_text(encoding="ascii").strip()
    output.say(JoinToken(address=record.control_address, secret=secret).text())
