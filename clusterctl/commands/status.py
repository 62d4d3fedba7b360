"""`clusterctl status`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from clusterctl import output

from .options import Cluster, Json, Which

if TYPE_CHECKING:
    from .session import Session

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

    from .session import open_session

    session = open_session(cluster or which)
    if command := session.runtime().status_command:
        _by_command(session, command, json)
        return
    try:
        report = session.api().request("GET", "/api/cluster_status", patience_s=1.0).json()
    except (Unreachable, TimedOut, Denied):
        _machines(session, json)
        raise
    if json:
        output.as_json(report)
        return
    for line in render(report, verbose):
        output.say(line)


def _machines(session: Session, json: bool, **more: object) -> None:
    """What the provider lists."""
    machines = session.machines()
    if json:
        listed = [{"id": m.id, "node_type": m.node_type, "state": m.state.value} for m in machines]
        name, state = session.record.name, session.record.state
        output.as_json({"cluster_name": name, "state": state, "machines": listed, **more})
        return
    output.say(f"cluster '{session.record.name}': {len(machines)} machines")
    rows = [(m.id, "head" if m.is_head else m.node_type, m.state.value) for m in machines]
    for line in output.table(("machine", "type", "state"), rows):
        output.say(f"  {line}")


def _by_command(session: Session, command: str, json: bool) -> None:
    """The provider's listing, and what the runtime's own command prints on the head."""
    from clusterctl.errors import Unreachable

    with session.entered(session.head()) as shell:
        said = shell.run(command, env=session.environment(), timeout_s=60.0)
    runtime = session.record.spec.runtime
    _machines(session, json, **{f"{runtime.__struct_config__.tag}_status": said.output})
    if not json:
        output.say(said.output.rstrip())
    if said.exit_status:
        raise Unreachable(f"{runtime.name} does not answer on the head", f"Run: {session.record.up_command}")
