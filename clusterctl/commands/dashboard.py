"""`clusterctl dashboard`."""

from __future__ import annotations

from typing import Annotated

import typer

from clusterctl import output

from .options import Cluster, Which

USUAL_PORT = 8265


def dashboard(
    which: Which = None,
    cluster: Cluster = None,
    port: Annotated[
        int | None,
        typer.Option(
            "--port", "-p", min=1, max=65535, help=f"Local port. Default: {USUAL_PORT}, or any free one."
        ),
    ] = None,
    until_eof: Annotated[bool, typer.Option("--until-eof", hidden=True)] = False,
) -> None:
    """Forwards a local port to the head's API until Ctrl-C, and prints the URL.

    The API listens only on the loopback of the head's machine, and needs the cluster's secret.

    \b
      clusterctl dashboard --port 8265
    """
    import sys
    import threading
    from urllib.parse import urlsplit

    from clusterctl.errors import CliError

    from .opened_cluster import open_cluster
    from .ports import forward

    opened = open_cluster(cluster or which)
    opened.api().get("/api/version")
    there = urlsplit(opened.record.api_url).port or 80
    with opened.entered(opened.head()) as shell:
        try:
            way = forward(shell, there, port or USUAL_PORT)
            here = way.__enter__()
        except CliError:
            if port is not None:
                raise
            way = forward(shell, there, 0)
            here = way.__enter__()
        try:
            output.say(f"http://127.0.0.1:{here}")
            secret = opened.home.secret_file(opened.record.name)
            output.progress(
                f"every request needs the header 'Authorization: Bearer ...' with what is in {secret}"
            )
            output.progress("Ctrl-C ends it")
            if until_eof:  # for programs: until whoever started it has ended
                sys.stdin.read()
            else:
                threading.Event().wait()  # until Ctrl-C
        except KeyboardInterrupt:
            return
        finally:
            way.__exit__(None, None, None)
