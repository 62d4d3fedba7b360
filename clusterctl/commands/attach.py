"""`clusterctl attach`."""

from __future__ import annotations

import typer

from .options import Cluster


def attach(cluster: Cluster = None) -> None:
    """Opens a shell on the cluster's head.

    Programs started there find the cluster: `import runtime; runtime.init()`.

    \b
      clusterctl attach
    """
    from .session import open_session

    session = open_session(cluster)
    shell = session.shell(session.head())
    try:
        status = shell.interactive(env=session.environment())
    finally:
        shell.close()
    raise typer.Exit(status)
