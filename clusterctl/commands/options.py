"""Options that several commands share."""

from __future__ import annotations

from typing import Annotated

import typer

Cluster = Annotated[
    str | None,
    typer.Option(
        "--cluster", "-c", metavar="NAME|FILE", help="Which cluster; default: the one brought up last."
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
