"""`clusterctl rsync up` and `clusterctl rsync down`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from clusterctl import output

from .options import Cluster, Node

if TYPE_CHECKING:
    from autoscaler.provider import Machine
    from clusterctl.sync.transfer import Done


def up(
    source: Annotated[
        str | None,
        typer.Argument(help="Local file or folder. Default: the file_mounts of the YAML."),
    ] = None,
    target: Annotated[str | None, typer.Argument(help="Path on the node.")] = None,
    cluster: Cluster = None,
    node: Node = None,
    all_nodes: Annotated[bool, typer.Option("--all-nodes", "-A", help="Copy to every node.")] = False,
) -> None:
    """Copies a file, or the contents of a folder, to the cluster's head, to another node, or to all.

    Transfers only changed files and deletes nothing. rsync_exclude and rsync_filter of the cluster's YAML apply.
    Without SOURCE and TARGET it updates the head's file_mounts.

    A cluster's name or YAML may come first; write ./NAME for a file or folder of that name.

    \b
      clusterctl rsync up ./data '~/data'
    """
    import os

    from clusterctl.errors import UsageProblem
    from clusterctl.launcher import setup
    from clusterctl.sync import transfer
    from clusterctl.sync.receiver import MOUNT
    from clusterctl.sync.rules import rules

    from .opened_cluster import open_cluster

    if (source is None) != (target is None):
        raise UsageProblem("a TARGET is missing", "Say what to bring and where to, or neither.")
    if all_nodes and node:
        raise UsageProblem("--all-nodes does not go with --node")
    opened = open_cluster(cluster)
    spec = opened.record.spec
    purpose = MOUNT if source is None else "rsync"
    if source is None or target is None:
        mounts = setup.operators_mounts(spec)
        if not mounts:
            raise UsageProblem("the cluster's YAML has no file_mounts", "Name a SOURCE and a TARGET.")
    else:
        chosen = rules(spec.rsync_exclude, spec.rsync_filter)
        mounts = (transfer.Mount(target, os.path.expanduser(source), chosen),)

    def bring(machine: Machine) -> None:
        with opened.entered(machine) as shell:
            found = transfer.manifests(mounts, opened.home.digests_file(opened.record.name))
            for done in transfer.push(shell, mounts, found, delete=source is None, purpose=purpose):
                _tell(machine, done)

    _each(opened.running() if all_nodes else [opened.find(node)], bring)


def down(
    source: Annotated[str, typer.Argument(help="File or folder on the node.")],
    target: Annotated[str, typer.Argument(help="Local path.")],
    cluster: Cluster = None,
    node: Node = None,
) -> None:
    """Copies a file, or the contents of a folder, from the cluster's head or another node to this machine.

    Transfers only changed files and deletes nothing. rsync_exclude and rsync_filter of the cluster's YAML apply. A
    cluster's name or YAML may come first; write ./NAME for a file or folder of that name.

    \b
      clusterctl rsync down '~/results' ./results
    """
    import os

    from clusterctl.sync import transfer

    from .opened_cluster import open_cluster

    opened = open_cluster(cluster)
    spec = opened.record.spec

    def bring(machine: Machine) -> None:
        with opened.entered(machine) as shell:
            local = os.path.expanduser(target)
            _tell(machine, transfer.pull(shell, source, local, spec.rsync_exclude, spec.rsync_filter))

    _each([opened.find(node)], bring)


def _each(machines: Sequence[Machine], bring: Callable[[Machine], None]) -> None:
    """One after the other, so that each line of output is whole."""
    from clusterctl.errors import CliError
    from clusterctl.sync.transfer import SyncError

    for machine in machines:
        try:
            bring(machine)
        except SyncError as error:
            raise CliError(f"{machine.id}: {error}") from error


def _tell(machine: Machine, done: Done) -> None:
    output.progress(f"{machine.id}: {done.target}: {done.changes.describe()}, {done.entries} in all")
