"""Options and arguments that several commands share."""

from __future__ import annotations

from typing import Annotated, Any

import typer


def known_clusters(incomplete: str) -> list[str]:
    """For shell completion: clusters that this machine knows."""
    from clusterctl.errors import CliError
    from clusterctl.home import Home

    try:
        return [name for name in Home.find().names() if name.startswith(incomplete)]
    except CliError:
        return []


def _cluster(*names: str) -> Any:
    return typer.Option(
        *names,
        metavar="NAME|FILE",
        help="Which cluster; default: CLUSTERCTL_CLUSTER, else this terminal's, else the only one.",
        autocompletion=known_clusters,
    )


Cluster = Annotated[str | None, _cluster("--cluster", "-c", "--cluster-name")]
"""The last name is Ray's."""
ClusterOnly = Annotated[str | None, _cluster("--cluster", "-c")]
"""Of a command whose `--cluster-name` is `Name`."""
Which = Annotated[
    str | None,
    typer.Argument(metavar="[NAME|FILE]", help="Which cluster; as --cluster.", autocompletion=known_clusters),
]
Node = Annotated[
    str | None,
    typer.Option(
        "--node", "--node-ip", metavar="ID", help="Another node: a machine or instance id, or an address."
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Say what would be done, and do nothing.")]
Name = Annotated[
    str | None,
    typer.Option(
        "--cluster-name", "-n", metavar="NAME", help="Another name for the cluster than the YAML's."
    ),
]
NoConfigCache = Annotated[
    bool, typer.Option("--no-config-cache", hidden=True, help="For Ray's scripts: there is no cache.")
]
Start = Annotated[bool, typer.Option("--start", help="Bring the cluster up first, if it is not.")]
Tmux = Annotated[bool, typer.Option("--tmux", help="In tmux, where it outlives this terminal.")]
Screen = Annotated[bool, typer.Option("--screen", help="In screen, where it outlives this terminal.")]
Forwards = Annotated[
    list[str] | None,
    typer.Option(
        "--port-forward",
        "-p",
        metavar="PORT|HERE:THERE",
        help="While it lasts, a port of this machine leads to one of the node. May be repeated.",
    ),
]
