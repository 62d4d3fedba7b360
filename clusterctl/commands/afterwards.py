"""What `--stop` and `--down` of a command mean: the cluster ends afterwards, however the command does."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

import typer

from clusterctl import output

if TYPE_CHECKING:
    from clusterctl.api_client import ApiClient

    from .opened_cluster import OpenedCluster

IDLE_MINUTES = 5.0
"""Where the head ends the cluster, because nobody watches any more: so long nothing may have used it."""
_PATIENCE_S = 60.0
_BUSY_S = 600.0
_BUSY_POLL_S = 0.5


def check(opened: OpenedCluster, stop: bool, down: bool) -> None:
    """Refuses, before anything is done, what the provider cannot do."""
    from clusterctl.errors import UsageProblem

    if stop and not down and not opened.provider().capabilities.stop_start:
        raise UsageProblem("machines of this provider cannot be stopped, only ended", "Say --down.")


@contextlib.contextmanager
def ending(opened: OpenedCluster, stop: bool, down: bool) -> Iterator[None]:
    """Ends the cluster when the body has ended, whichever way, if that is wanted."""
    from clusterctl.errors import CliError, ExitCode

    if not (stop or down):
        yield
        return
    try:
        yield
    except CliError as error:
        ended(opened, down, f"{error.message}\nthe cluster ends all the same")
        raise typer.Exit(error.exit_code) from error
    except KeyboardInterrupt:
        ended(opened, down, "interrupted: the command was killed, and the cluster ends")
        raise typer.Exit(ExitCode.INTERRUPTED) from None
    except BaseException:
        ended(opened, down)
        raise
    ended(opened, down)


@contextlib.contextmanager
def of_job(opened: OpenedCluster, api: ApiClient, stop: bool, down: bool) -> Iterator[None]:
    """Ends the cluster when the body has submitted a job and seen its end, if that is wanted. The job may be refused,
    and runs on when it is not watched any more: the head is told before to end the cluster then."""
    from clusterctl.errors import CliError, Interrupted, TimedOut, Unreachable
    from clusterctl.launcher import look

    if not (stop or down):
        yield
        return
    act = "ends" if down else "stops"
    if not opened.has_our_head:
        later = f"The cluster runs on until `clusterctl {'down' if down else 'stop'}`."
    else:
        _hand_over(opened, api, down)
        later = f"The cluster {act} by itself when nothing has used it for {IDLE_MINUTES:g} min."
    try:
        yield
    except Interrupted as error:
        raise Interrupted(f"{error.message}\n  {later}") from None
    except KeyboardInterrupt:
        raise Interrupted(
            f"interrupted; the job may have begun, `clusterctl job list` shows it\n  {later}"
        ) from None
    except (Unreachable, TimedOut) as error:
        if not look.head_is_dead(opened.home, opened.record, opened.provider()):
            raise type(error)(error.message, f"The job may run on. {later}") from error
        ended(opened, down, f"the head is dead, and the job with it: {error.message}")
        raise typer.Exit(error.exit_code) from error
    except CliError as error:
        raise type(error)(error.message, f"{error.hint}\n{later}".strip()) from error
    ended(opened, down)


def _hand_over(opened: OpenedCluster, api: ApiClient, down: bool) -> None:
    """Has the head end the cluster when nothing has used it for a while."""
    import msgspec

    opened.may_end_by_itself()
    wanted = {"idle_minutes": IDLE_MINUTES, "down": down}
    api.request("PUT", "/api/autostop", body=msgspec.json.encode(wanted), patience_s=_PATIENCE_S)


def ended(opened: OpenedCluster, for_good: bool, why: str = "") -> None:
    """Stops the cluster, or ends it, whether anybody is there to read of it or not. Waits for another
    command that changes it."""
    from clusterctl.errors import Busy

    from . import down, stop

    act = down.end_cluster if for_good else stop.stop_cluster
    deadline, told = time.monotonic() + _BUSY_S, ""
    with contextlib.redirect_stdout(sys.stderr):
        if why:
            output.progress(why)
        while True:
            try:
                act(opened.home, opened.record)
                return
            except Busy as error:
                if time.monotonic() >= deadline:
                    raise
                if told != error.message:
                    told = error.message
                    output.progress(f"{told}; waiting for it")
            time.sleep(_BUSY_POLL_S)
