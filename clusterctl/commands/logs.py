"""`clusterctl logs`."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Annotated

import typer

from clusterctl import output

from .options import Cluster

if TYPE_CHECKING:
    from autoscaler.provider import Machine

    from .session import Session

_NO_FILE = 3


def logs(
    node: Annotated[
        str | None,
        typer.Argument(help="A machine or instance id as in `clusterctl status`; default: the head."),
    ] = None,
    lines: Annotated[int, typer.Option("--lines", "-n", min=1, help="How many lines of each file.")] = 50,
    file: Annotated[str | None, typer.Option(help="Only log files whose name holds this text.")] = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on until Ctrl-C.")] = False,
    cluster: Cluster = None,
) -> None:
    """Shows what a node's daemons wrote, and how the node was set up.

    On the head that includes the jobs' output and how each worker was set up. Works when the head is dead, as
    long as its machine is there.

    \b
      clusterctl logs -n 200 --file agent
      clusterctl logs worker-1a2b
    """
    from clusterctl.errors import NotFound
    from clusterctl.launcher.machines import head_of

    from .session import open_session

    session = open_session(cluster)
    machine = _find(session, node)
    pattern = f"*{shlex.quote(file)}*" if file else "[!w]*.log"
    shown = False
    head = head_of(session.machines())
    if not machine.is_head and head is not None and not follow and not file:
        shown = _show(session, head, f"setup-{shlex.quote(machine.instance_id)}.log", lines, False)
    shown = _show(session, machine, pattern, lines, follow) or shown
    if not shown:
        what = f"has no log file whose name holds '{file}'" if file else "has no logs yet"
        raise NotFound(f"machine {machine.id} {what}")


def _show(session: Session, machine: Machine, pattern: str, lines: int, follow: bool) -> bool:
    """Prints the ends of the machine's log files that fit; False when none does."""
    shell = session.shell(machine)
    tail = f"tail -n {lines} {'-F' if follow else ''} -v --"
    inside = f'cd "${{CLUSTERCTL_SESSION_DIR:-.}}/logs" 2>/dev/null && ls {pattern} >/dev/null 2>&1 || exit {_NO_FILE}'
    try:
        return shell.run(f"{inside}; {tail} {pattern}", on_output=output.say).exit_status != _NO_FILE
    finally:
        shell.close()


def _find(session: Session, node: str | None) -> Machine:
    from clusterctl.errors import NotFound
    from clusterctl.launcher.machines import head_of

    machines = session.machines()
    if node is None or node == "head":
        head = head_of(machines)
        if head is None:
            raise NotFound(f"the head's machine of cluster '{session.record.name}' is gone")
        return head
    found = [m for m in machines if m.id.startswith(node) or m.instance_id.startswith(node)]
    if len(found) != 1:
        names = ", ".join(f"{m.id} ({m.instance_id})" for m in machines)
        problem = "more than one machine fits" if found else "there is no machine"
        raise NotFound(f"{problem} '{node}'", f"Machines of the cluster: {names or 'none'}.")
    return found[0]
