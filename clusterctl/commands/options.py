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
        help="Which cluster. Default: CLUSTERCTL_CLUSTER, this terminal's current one, or the only one.",
        autocompletion=known_clusters,
    )


Cluster = Annotated[str | None, _cluster("--cluster", "-c", "--cluster-name")]
"""The last name is Ray's."""
ClusterOnly = Annotated[str | None, _cluster("--cluster", "-c")]
"""Of a command whose `--cluster-name` is `Name`."""
Which = Annotated[
    str | None,
    typer.Argument(
        metavar="[NAME|FILE]", help="Which cluster; like --cluster.", autocompletion=known_clusters
    ),
]
Node = Annotated[
    str | None,
    typer.Option(
        "--node", "--node-ip", metavar="ID", help="Another node: machine id, instance id or address."
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON for programs.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Answer every question with yes.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Print what would be done, and do nothing.")]
Name = Annotated[
    str | None,
    typer.Option("--cluster-name", "-n", metavar="NAME", help="Cluster name, instead of the YAML's."),
]
NoConfigCache = Annotated[
    bool,
    typer.Option("--no-config-cache", hidden=True, help="Accepted for Ray's scripts: there is no cache."),
]
Start = Annotated[bool, typer.Option("--start", help="Bring the cluster up first, unless it runs.")]
Tmux = Annotated[bool, typer.Option("--tmux", help="Use a tmux opened, which outlives this terminal.")]
Screen = Annotated[bool, typer.Option("--screen", help="Use a screen opened, which outlives this terminal.")]
Forwards = Annotated[
    list[str] | None,
    typer.Option(
        "--port-forward",
        "-p",
        metavar="PORT|HERE:THERE",
        help="Forward a local port to a port of the node meanwhile. May be repeated.",
    ),
]
