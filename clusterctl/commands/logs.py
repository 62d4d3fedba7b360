"""`clusterctl logs`."""

from __future__ import annotations

import glob
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from clusterctl import output

from .options import Cluster, Node

if TYPE_CHECKING:
    from autoscaler.provider import Machine

    from .opened_cluster import OpenedCluster

_NO_FILE = 3
_IN_LOGS = 'cd "${CLUSTERCTL_SESSION_DIR:-.}/logs" 2>/dev/null'


def logs(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="[NODE]", help="Like --node: an id from `clusterctl node list`. Default: the head."
        ),
    ] = None,
    lines: Annotated[int, typer.Option("--lines", "-n", min=1, help="Lines of each file.")] = 50,
    file: Annotated[str | None, typer.Option(help="Only log files whose name contains this text.")] = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Follow until Ctrl-C.")] = False,
    setup: Annotated[bool, typer.Option("--setup", help="Only the log of the node's setup.")] = False,
    node: Node = None,
    cluster: Cluster = None,
) -> None:
    """Prints the logs of a node's daemons and of its setup.

    On the head this includes the output of jobs and the setup logs of workers, also of workers that are gone. The head
    need not run, only its machine. --follow resumes after a lost connection. A cluster's name or YAML may come before
    the node.

    \b
      clusterctl logs -n 200 --file agent
      clusterctl logs 3a56d39878
      clusterctl logs training 3a56d39878 --setup
    """
    from clusterctl.errors import NotFound

    from .opened_cluster import open_cluster

    opened = open_cluster(cluster)
    wanted = node or name
    own_logs = opened.home.folder(opened.record.name) / "logs"
    if setup and (wanted is None or wanted == "head"):
        if not _show_own(own_logs / "head-setup.log", lines, None):
            raise NotFound("there is no log here of how the head was set up", f"It would be in {own_logs}.")
        return
    try:
        machine = opened.find(wanted, even_stopped=True)
    except NotFound:
        if wanted is None or not _show_setup(opened, wanted, lines):
            raise
        return
    if setup:
        shown = any(_show_own(path, lines, None) for path in own_logs.glob(f"setup-{machine.id}.log"))
        if not shown and not _show_setup(opened, machine.instance_id, lines):
            raise NotFound(f"there is no log of how machine {machine.id} was set up")
        return
    pattern = f"*{shlex.quote(file)}*" if file else "[!w]*.log"
    if follow:
        from .log_following import follow_files

        follow_files(opened, machine, pattern, lines)
        return
    shown = False
    if machine.is_head:
        shown = _show_own(own_logs / "head-setup.log", lines, file)
    elif not file:
        shown = _show_setup(opened, machine.instance_id, lines)
    shown = _show(opened, machine, pattern, lines) or shown
    if not shown:
        what = f"has no log file whose name holds '{file}'" if file else "has no logs yet"
        raise NotFound(f"machine {machine.id} {what}")


def _show(opened: OpenedCluster, machine: Machine, pattern: str, lines: int) -> bool:
    """Prints the ends of the machine's log files that fit; False when none does."""
    inside = f"{_IN_LOGS} && ls {pattern} >/dev/null 2>&1 || exit {_NO_FILE}"
    with opened.entered(machine) as shell:
        result = shell.run(f"{inside}; tail -n {lines} -v -- {pattern}", on_output=output.say)
    return result.exit_status != _NO_FILE


def _show_setup(opened: OpenedCluster, instance: str, lines: int) -> bool:
    """Prints how workers were set up whose instance id begins so: their head keeps that, or this machine, where it set
    them up itself."""
    from clusterctl.errors import NotFound

    if not opened.record.spec.runtime.autoscales:
        kept = (opened.home.folder(opened.record.name) / "logs").glob(f"setup-{glob.escape(instance)}*.log")
        shown = [_show_own(path, lines, None) for path in sorted(kept)]
        return any(shown)
    try:
        head = opened.find(None, even_stopped=True)
    except NotFound:
        return False
    return _show(opened, head, f"setup-{shlex.quote(instance)}*.log", lines)


def _show_own(path: Path, lines: int, file: str | None) -> bool:
    """Prints how the head was set up, which is kept here."""
    if (file and file not in path.name) or not path.exists():
        return False
    output.say(f"==> {path} <==")
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines()[-lines:]:
        output.say(line)
    output.say()
    return True
