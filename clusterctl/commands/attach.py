"""`clusterctl attach`."""

from __future__ import annotations

from typing import Annotated

import typer

from .options import Cluster, Forwards, NoConfigCache, Node, Screen, Start, Tmux, Which


def attach(
    which: Which = None,
    cluster: Cluster = None,
    node: Node = None,
    tmux: Tmux = False,
    screen: Screen = False,
    new: Annotated[
        bool, typer.Option("--new", "-N", help="Start a new session instead of joining the existing one.")
    ] = False,
    port_forward: Forwards = None,
    start: Start = False,
    no_config_cache: NoConfigCache = False,
) -> None:
    """Opens a shell on the cluster's head, or on another node.

    Programs started there find the cluster: `import runtime; runtime.init()`. --tmux and --screen join the existing
    opened, whose programs continue when this terminal closes.

    \b
      clusterctl attach
      clusterctl attach --tmux --port-forward 8888
    """
    from clusterctl.errors import UsageProblem

    from .multiplexers import Multiplexer, join
    from .opened_cluster import open_cluster
    from .ports import forwarding
    from .starting import started

    if tmux and screen:
        raise UsageProblem("--tmux and --screen exclude each other")
    if new and not (tmux or screen):
        raise UsageProblem("--new is for --tmux or --screen: a shell is always a new one")
    if start:
        started(cluster or which)
    opened = open_cluster(cluster or which)
    program = Multiplexer.TMUX if tmux else Multiplexer.SCREEN if screen else None
    with (
        opened.entered(opened.find(node)) as shell,
        forwarding(shell, port_forward or ()),
    ):
        status = shell.interactive(join(program, new) if program else None, env=opened.environment())
    raise typer.Exit(status)
