"""What surrounds every command: failures become a message and an exit status, signals end it tidily."""

from __future__ import annotations

import errno
import functools
import os
import shutil
import signal
import time
from collections.abc import Callable
from types import FrameType
from typing import ParamSpec, TypeVar

import typer

from clusterctl import output
from clusterctl.errors import CliError, ExitCode, Interrupted, TimedOut, UsageProblem, from_provider

P = ParamSpec("P")
R = TypeVar("R")


_PAUSE_S = 1.0
_FULL_BYTES = 2**16
_interrupted_at = -_PAUSE_S
_typed = ""


def _interrupt(number: int, frame: FrameType | None) -> None:
    """Once a second at most: a second Ctrl-C right behind the first must not break into the cleaning up."""
    global _interrupted_at
    now = time.monotonic()
    if now - _interrupted_at >= _PAUSE_S:
        _interrupted_at = now
        raise KeyboardInterrupt


def _catch_signals() -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:  # nohup, or a shell's background job
            signal.signal(number, _interrupt)


def guarded(command: Callable[P, R], name: str = "") -> Callable[P, R]:
    """Wraps a command. SIGTERM and SIGHUP end it like Ctrl-C, so that it cleans up after itself.

    Args:
        name: as it is typed; default: the function's.
    """

    @functools.wraps(command)
    def run(*args: P.args, **kwargs: P.kwargs) -> R:
        global _typed
        _typed = name or command.__name__
        try:
            _catch_signals()
        except ValueError:
            pass  # not in the main thread: whoever runs us there handles signals
        try:
            return command(*args, **kwargs)
        except KeyboardInterrupt:
            output.error(f"`clusterctl {_typed}` was interrupted")
            raise typer.Exit(ExitCode.INTERRUPTED) from None
        except Interrupted as error:
            output.progress(error.message)
            raise typer.Exit(error.exit_code) from None
        except BrokenPipeError:
            raise typer.Exit(ExitCode.FAILURE) from None
        except CliError as error:
            output.error(error.message, error.hint)
            raise typer.Exit(error.exit_code) from error
        except OSError as error:
            output.error(*_describe(error))
            raise typer.Exit(ExitCode.FAILURE) from error
        except Exception as error:  # what is not known is a fault of ours, and its traceback is wanted
            known = _translated(error)
            if known is None:
                raise
            output.error(known.message, known.hint)
            raise typer.Exit(known.exit_code) from error

    return run


def typed() -> str:
    """The command that runs, as it is typed, whatever else it calls."""
    return _typed


def _translated(error: Exception) -> CliError | None:
    """What a machine, a platform or a transfer said and no command had other words for; None: it is none of these."""
    from autoscaler.provider import ProviderError, SetupError, ShellError, ShellTimedOut
    from clusterctl.sync.transfer import SyncError
    from runtime._system.variables import SettingError

    doctor = "`clusterctl doctor` looks for what is wrong."
    match error:
        case SettingError():
            return UsageProblem(str(error), f"Change {error.variable}, or unset it.")
        case ProviderError() | SetupError():
            return from_provider(error)
        case ShellTimedOut():
            return TimedOut(str(error), doctor)
        case ShellError() | SyncError():
            return CliError(str(error), doctor)
    return None


def _describe(error: OSError) -> tuple[str, str]:
    """Message and advice for what the operating system refused."""
    no_space = error.errno in (errno.ENOSPC, errno.EDQUOT)
    where = f"{error.filename}: " if error.filename else ""
    if no_space and not where:  # what writes says not where
        where = "".join(f"{folder}: " for folder in _folders() if _is_full(folder))
    # Never to set another CLUSTERCTL_HOME: a cluster that is known here would not be found there.
    advice = "Make room on that disk, and run the command again."
    return f"{where}{error.strerror or error}", advice if no_space else ""


def _folders() -> list[str]:
    """Where commands write: what is known of clusters, local machines, and here."""
    from runtime._system import settings

    home = settings.OPERATOR_HOME.get() or os.path.expanduser("~/.clusterctl")
    return [home, settings.TEMPORARY_ROOT.get() or settings.TMPDIR.get() or "/tmp", "."]


def _is_full(folder: str) -> bool:
    try:
        return shutil.disk_usage(folder).free < _FULL_BYTES
    except OSError:
        return False
