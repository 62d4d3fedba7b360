"""`clusterctl monitor`."""

from __future__ import annotations

from typing import Annotated

import typer

from .options import Cluster, Which


def monitor(
    which: Which = None,
    lines: Annotated[int, typer.Option("--lines", "-n", min=1, help="Lines to begin with.")] = 100,
    follow: Annotated[bool, typer.Option(help="Follow until Ctrl-C.")] = True,
    cluster: Cluster = None,
) -> None:
    """Follows the head's log, which has the autoscaler's actions.

    \b
      clusterctl monitor cluster.yaml
    """
    from .logs import logs

    logs("head", lines=lines, file="head.log", follow=follow, cluster=cluster or which)
