"""What surrounds every command: failures become a message and an exit status, signals end it tidily."""

from __future__ import annotations

import functools
import signal
from collections.abc import Callable
from types import FrameType
from typing import ParamSpec, TypeVar

import typer

from clusterctl import output
from clusterctl.errors import CliError, ExitCode, Interrupted

P = ParamSpec("P")
R = TypeVar("R")


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def guarded(command: Callable[P, R]) -> Callable[P, R]:
    """Wraps a command. SIGTERM and SIGHUP end it like Ctrl-C, so that it cleans up after itself."""

    @functools.wraps(command)
    def run(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            for number in (signal.SIGTERM, signal.SIGHUP):
                signal.signal(number, _interrupt)
        except ValueError:
            pass  # not in the main thread: whoever runs us there handles signals
        try:
            return command(*args, **kwargs)
        except KeyboardInterrupt:
            output.error(f"`clusterctl {command.__name__.replace('_', ' ')}` was interrupted")
            raise typer.Exit(ExitCode.INTERRUPTED) from None
        except Interrupted as error:
            output.progress(error.message)
            raise typer.Exit(error.exit_code) from None
        except BrokenPipeError:
            raise typer.Exit(ExitCode.FAILURE) from None
        except CliError as error:
            output.error(error.message, error.hint)
            raise typer.Exit(error.exit_code) from error

    return run
