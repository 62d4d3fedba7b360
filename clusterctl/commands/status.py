"""`clusterctl status`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from clusterctl import output

from .options import Cluster, Json, Which

if TYPE_CHECKING:
    from .opened_cluster import OpenedCluster

Verbose = Annotated[
    bool,
    typer.Option("--verbose", "-v", help="Show the history of every instance, ended ones included."),
]


def status(
    which: Which = None, cluster: Cluster = None, verbose: Verbose = False, json: Json = False
) -> None:
    """Shows nodes, demand, scaling and jobs.

    Says which requests wait for resources and why, and what the autoscaler did last. -v adds what happened to each
    machine and why; --json always has it.

    \b
      clusterctl status --json | jq '.nodes[].state'
    """
    from clusterctl.errors import Denied, TimedOut, Unreachable
    from clusterctl.status_view import render

    from .opened_cluster import open_cluster

    opened = open_cluster(cluster or which)
    if command := opened.runtime().status_command:
        _by_command(opened, command, json)
        return
    try:
        report = opened.api().request("GET", "/api/cluster_status", patience_s=1.0).json()
    except (Unreachable, TimedOut, Denied):
        _machines(opened, json)
        raise
    if json:
        output.as_json(report)
        return
    for line in render(report, verbose):
        output.say(line)


def _machines(opened: OpenedCluster, json: bool, **more: object) -> None:
    """What the provider lists."""
    machines = opened.machines()
    if json:
        listed = [{"id": m.id, "node_type": m.node_type, "state": m.state.value} for m in machines]
        name, state = opened.record.name, opened.record.state
        output.as_json({"cluster_name": name, "state": state, "machines": listed, **more})
        return
    output.say(f"cluster '{opened.record.name}': {len(machines)} machines")
    rows = [(m.id, "head" if m.is_head else m.node_type, m.state.value) for m in machines]
    for line in output.table(("machine", "type", "state"), rows):
        output.say(f"  {line}")


def _by_command(opened: OpenedCluster, command: str, json: bool) -> None:
    """The provider's listing, and what the runtime's own command prints on the head."""
    from clusterctl.errors import Unreachable

    with opened.entered(opened.head()) as shell:
        said = shell.run(command, env=opened.environment(), timeout_s=60.0)
    runtime = opened.record.spec.runtime
    _machines(opened, json, **{f"{runtime.__struct_config__.tag}_status": said.output})
    if not json:
        output.say(said.output.rstrip())
    if said.exit_status:
        raise Unreachable(f"{runtime.name} does not answer on the head", f"Run: {opened.record.up_command}")
