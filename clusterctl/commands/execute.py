"""`clusterctl exec`."""

from __future__ import annotations

import os
import shlex
import signal
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from clusterctl import output

from . import afterwards
from .options import Cluster, Forwards, NoConfigCache, Node, Screen, Start, Tmux

if TYPE_CHECKING:
    from autoscaler.provider import Machine, Streams

    from .opened_cluster import OpenedCluster

_BEGIN_S = 30.0
_END = '"${CLUSTERCTL_PYTHON:-python3}" -m clusterctl.head.end_request'


def execute(
    command: Annotated[
        list[str], typer.Argument(metavar="COMMAND...", help="One string for a shell, or words.")
    ],
    cluster: Cluster = None,
    node: Node = None,
    all_nodes: Annotated[
        bool,
        typer.Option(
            "--all-nodes", help="Run on every node in parallel, with the node's name before each line."
        ),
    ] = False,
    timeout: Annotated[float | None, typer.Option(help="Kill the command after this many seconds.")] = None,
    tmux: Tmux = False,
    screen: Screen = False,
    port_forward: Forwards = None,
    start: Start = False,
    stop: Annotated[bool, typer.Option("--stop", help="Stop the cluster after the command.")] = False,
    down: Annotated[bool, typer.Option("--down", help="Take the cluster down after the command.")] = False,
    no_config_cache: NoConfigCache = False,
) -> None:
    """Runs a command on the cluster's head, on another node, or on all.

    The command reads stdin (unless that is a terminal); stdout and stderr stay separate and unchanged, as in a pipe.
    The exit status is the command's. With --all-nodes it reads nothing, stdout and stderr are merged line by line, and
    the exit status is the worst one, or 255 if a node could not be entered.

    --stop and --down end the cluster afterwards, however the command ended: by itself, by --timeout, by Ctrl-C, or
    because the connection broke.

    --tmux and --screen start the command in a session on the node, and return. With --stop or --down the head then ends
    the cluster, on whichever node the command runs.

    A cluster's name or YAML may come first: clusterctl exec training 'ls' --tmux. Put `--` before a program that has
    the name of a known cluster.

    \b
      clusterctl exec python -c 'import runtime; runtime.init(); print(runtime.nodes())'
      clusterctl exec 'ls | wc -l'
      tar c . | clusterctl exec 'tar x -C data'
      clusterctl exec 'cat results.tgz' > results.tgz
      clusterctl exec --all-nodes 'df -h /'
    """
    from clusterctl.errors import UsageProblem

    from .opened_cluster import open_cluster
    from .starting import started

    if command[0].startswith("-"):
        raise UsageProblem(f"no such option: {command[0]}", "See `clusterctl exec --help`.")
    chosen = [
        name for name, given in (("--tmux", tmux), ("--screen", screen), ("--all-nodes", all_nodes)) if given
    ]
    for names in (chosen, [*chosen[:1], "--timeout"] if timeout and (tmux or screen) else []):
        if len(names) > 1:
            raise UsageProblem(f"{' and '.join(names)} exclude each other")
    if all_nodes and (node or port_forward):
        raise UsageProblem("--all-nodes goes with neither --node nor --port-forward")
    if stop and down:
        raise UsageProblem("--stop and --down exclude each other")
    if (tmux or screen) and port_forward:
        raise UsageProblem("--tmux and --screen return at once, so --port-forward makes no sense with them")
    if start:
        started(cluster)
    opened = open_cluster(cluster)
    afterwards.check(opened, stop, down)
    text = command[0] if len(command) == 1 else shlex.join(command)
    if tmux or screen:
        if stop or down:
            opened.may_end_by_itself()
            # The command may leave its shell, by `exit` or `exec`: it gets one of its own.
            text = f"/bin/sh -c {shlex.quote(text)}\n{_END}{' --down' if down else ''}"
        raise typer.Exit(_begin(opened, node, text, "tmux" if tmux else "screen"))
    machines = opened.running() if all_nodes else [opened.find(node)]
    with afterwards.ending(opened, stop, down):
        if all_nodes:
            from .everywhere import run_on

            status = run_on(opened, machines, text, timeout)
        else:
            status = _run(opened, machines[0], text, timeout, port_forward or ())
    raise typer.Exit(status)


def _run(
    opened: OpenedCluster, machine: Machine, text: str, timeout_s: float | None, ports: Sequence[str]
) -> int:
    from clusterctl.errors import process_status

    from .ports import forwarding

    with opened.entered(machine) as shell, forwarding(shell, ports):
        try:
            status = shell.pipe(text, _streams(), env=opened.environment(), timeout_s=timeout_s)
        except BrokenPipeError:
            return 128 + signal.SIGPIPE  # as `ssh HOST yes | head`
    return process_status(status)


def _streams() -> Streams:
    """This process's own. A terminal is no input: `attach` connects terminals."""
    from autoscaler.provider import Streams

    is_input = sys.stdin is not None and not os.isatty(0)  # None: it was closed
    return Streams(0 if is_input else None, 1, 2)


def _begin(opened: OpenedCluster, node: str | None, text: str, program: str) -> int:
    """Starts the command in a terminal of its own on the node, and says how to see it."""
    import secrets

    from clusterctl.errors import process_status

    from .multiplexers import Multiplexer, begin

    name = f"exec-{secrets.token_hex(2)}"
    machine = opened.find(node)
    with opened.entered(machine) as shell:
        result = shell.run(
            begin(Multiplexer(program), name, text),
            env=opened.environment(),
            timeout_s=_BEGIN_S,
            on_output=output.progress,
        )
    if result.exit_status == 0:
        where = "" if machine.is_head else f" --node {machine.id}"
        output.progress(
            f"it runs in the {program} session {name}; see it: clusterctl attach{where} --{program}"
        )
    return process_status(result.exit_status)
