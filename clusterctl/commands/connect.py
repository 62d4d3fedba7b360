"""`clusterctl connect`."""

from __future__ import annotations

from typing import Annotated

import typer

from clusterctl import output

from .options import Cluster

USUAL_PORT = 10001


def connect(
    command: Annotated[
        list[str] | None,
        typer.Argument(metavar="[CLUSTER] [-- COMMAND...]", help="A command to run with these variables."),
    ] = None,
    cluster: Cluster = None,
    port: Annotated[
        int | None,
        typer.Option(
            "--port", "-p", min=1, max=65535, help=f"Local port. Default: {USUAL_PORT}, or any free one."
        ),
    ] = None,
) -> None:
    """Lets programs on this machine use the cluster: forwards a local port to the head through SSH until Ctrl-C.

    Prints the variables with which `runtime.init()` (or `ray.init()` under the alias) connects: RAY_ADDRESS=ray://...
    and the path of the secret's file. A command after `--` runs with these variables; `connect` ends with it and exits
    with its status. Programs need the extra `client` and the cluster's minor version of Python.

    \b
      clusterctl connect -- jupyter lab
      clusterctl connect training -- python explore.py
      clusterctl connect --port 10001
    """
    import os
    import shlex
    import subprocess
    import threading

    from clusterctl.errors import CliError, Unreachable

    from . import remote_drivers
    from .opened_cluster import open_cluster
    from .ports import forward

    opened = open_cluster(cluster)
    name = opened.record.name
    address, state, problem = remote_drivers.listening(opened.engine_api())
    if not address:
        raise Unreachable(
            f"the head of cluster '{name}' takes no remote drivers: {problem}",
            "Install the extra here (pip install 'clusterctl[client]'), then end the cluster and bring it up again."
            if state == "none"
            else f"The head goes on trying. What became of it: clusterctl status {name}",
        )
    there = int(address.rpartition(":")[2])
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
            variables = {
                "RAY_ADDRESS": f"ray://127.0.0.1:{here}",
                "RAY_AUTH_TOKEN_PATH": str(opened.home.secret_file(name)),
            }
            if command:
                environment = {key: value for key, value in os.environ.items() if key != "RAY_AUTH_TOKEN"}
                environment.pop("CLUSTERCTL_ADDRESS", None)  # it would win
                try:
                    process = subprocess.Popen(command, env={**environment, **variables})
                except OSError as error:
                    raise CliError(f"cannot run {command[0]}: {error.strerror}") from error
                while True:
                    try:
                        raise typer.Exit(process.wait())
                    except KeyboardInterrupt:  # the command has had it, too
                        continue
            for variable, value in variables.items():
                output.say(f"export {variable}={shlex.quote(value)}")
            output.progress("Ctrl-C ends it")
            threading.Event().wait()  # until Ctrl-C
        except KeyboardInterrupt:
            return
        finally:
            way.__exit__(None, None, None)
