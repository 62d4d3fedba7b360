"""`clusterctl exec`."""

from __future__ import annotations

import shlex
from typing import Annotated

import typer

from clusterctl import output

from .options import Cluster


def execute(
    command: Annotated[
        list[str], typer.Argument(metavar="COMMAND...", help="One string for a shell, or words.")
    ],
    cluster: Cluster = None,
    timeout: Annotated[float | None, typer.Option(help="Seconds after which the command is killed.")] = None,
) -> None:
    """Runs a command on the cluster's head.

    It has no terminal; its exit status is passed on.

    \b
      clusterctl exec python -c 'import runtime; runtime.init(); print(runtime.nodes())'
      clusterctl exec 'ls | wc -l'
    """
    from autoscaler.provider import ShellError, ShellTimedOut
    from clusterctl.errors import CliError, TimedOut, process_status

    from .session import open_session

    session = open_session(cluster)
    shell = session.shell(session.head())
    text = command[0] if len(command) == 1 else shlex.join(command)
    try:
        result = shell.run(text, env=session.environment(), timeout_s=timeout, on_output=output.say)
    except ShellTimedOut as error:
        raise TimedOut(str(error)) from error
    except ShellError as error:
        raise CliError(str(error)) from error
    finally:
        shell.close()
    raise typer.Exit(process_status(result.exit_status))
