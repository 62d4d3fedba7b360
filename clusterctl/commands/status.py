"""`clusterctl status`."""

from __future__ import annotations

from typing import Annotated

import typer

from clusterctl import output

from .options import Cluster, Json, Which

Verbose = Annotated[
    bool,
    typer.Option("--verbose", "-v", help="Every instance with its history, those that ended lately too."),
]


def status(
    which: Which = None, cluster: Cluster = None, verbose: Verbose = False, json: Json = False
) -> None:
    """Shows nodes, demand, scaling and jobs.

    That is: what waits for resources and why, and what the autoscaler did lately. With -v also what happened
    to each machine and why; --json always has that.

    \b
      clusterctl status --json | jq '.nodes[].state'
    """
    from clusterctl.errors import Denied, TimedOut, Unreachable
    from clusterctl.status_view import render

    from .session import open_session

    session = open_session(which or cluster)
    try:
        report = session.api().request("GET", "/api/cluster_status", patience_s=1.0).json()
    except (Unreachable, TimedOut, Denied):
        machines = session.machines()
        if json:
            output.as_json(
                {
                    "cluster_name": session.record.name,
                    "state": session.record.state,
                    "machines": [
                        {"id": m.id, "node_type": m.node_type, "state": m.state.value} for m in machines
                    ],
                }
            )
        else:
            output.say(f"cluster '{session.record.name}': {len(machines)} machines")
            rows = [(m.id, "head" if m.is_head else m.node_type, m.state.value) for m in machines]
            for line in output.table(("machine", "type", "state"), rows):
                output.say(f"  {line}")
        raise
    if json:
        output.as_json(report)
        return
    for line in render(report, verbose):
        output.say(line)
