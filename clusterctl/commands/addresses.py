"""`clusterctl get-head-ip` and `clusterctl get-worker-ips`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from clusterctl import output

from .options import Cluster, Which

if TYPE_CHECKING:
    from autoscaler.provider import Machine

Inside = Annotated[
    bool, typer.Option("--internal", help="Print the address that the nodes use among themselves.")
]


def get_head_ip(which: Which = None, cluster: Cluster = None, internal: Inside = False) -> None:
    """Prints the address of the head's machine.

    \b
      ping -c 1 "$(clusterctl get-head-ip)"     to log in: clusterctl attach, or clusterctl cluster ssh-config
    """
    from .opened_cluster import open_cluster

    output.say(_address(open_cluster(cluster or which).head(), internal))


def get_worker_ips(which: Which = None, cluster: Cluster = None, internal: Inside = False) -> None:
    """Prints the address of each worker's machine, one per line.

    \b
      clusterctl get-worker-ips cluster.yaml
    """
    from .opened_cluster import open_cluster

    for machine in open_cluster(cluster or which).running():
        if not machine.is_head:
            output.say(_address(machine, internal))


def _address(machine: Machine, internal: bool) -> str:
    return machine.address if internal else machine.public_address or machine.address
