"""`clusterctl serve ...`: the command line of `runtime.serve`."""

from __future__ import annotations

from typing import Annotated

import typer


def serve(
    arguments: Annotated[
        list[str] | None, typer.Argument(metavar="COMMAND [ARGS]...", help="See `clusterctl serve --help`.")
    ] = None,
) -> None:
    """Deploys and shows applications that are served: start, run, build, deploy, status, config, shutdown.

    \b
      clusterctl serve run main:app
      clusterctl serve deploy serve.yaml
      clusterctl serve status
    """
    from runtime.serve._operations.cli import main

    main(arguments or ["--help"], "clusterctl serve")
