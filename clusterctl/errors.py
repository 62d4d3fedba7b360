"""Errors of the command line, and the only place that knows exit statuses.

    CliError                 1   it failed; the message says what to do
      SetupFailed            1   a machine could not be made ready: which one, which step, its last lines
      UsageProblem           2   wrong arguments
        SpecError            2   a wrong cluster spec: file, line, column, key path for every problem
      NotFound               3   no such cluster, job, node or file
      Busy                   4   another clusterctl works on this cluster
      Unreachable            5   the cluster's head does not answer
      Denied                 6   the head or the provider refuses our credentials, or a cluster is another owner's
      TimedOut               7   it did not happen before the deadline
      Interrupted          130   Ctrl-C

`clusterctl submit`, `exec` and `attach` exit with the status of what they ran; 128 + n when signal n ended
it.
"""

from __future__ import annotations

from enum import IntEnum


class ExitCode(IntEnum):
    """The exit statuses of `clusterctl`."""

    OK = 0
    FAILURE = 1
    USAGE = 2
    NOT_FOUND = 3
    BUSY = 4
    UNREACHABLE = 5
    DENIED = 6
    TIMED_OUT = 7
    INTERRUPTED = 130


class CliError(Exception):
    """A failure with a message for the person at the terminal. `hint` says what to do next."""

    exit_code: ExitCode = ExitCode.FAILURE

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message, hint)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message}\n{self.hint}" if self.hint else self.message


class SetupFailed(CliError):
    """A machine could not be made ready."""


class UsageProblem(CliError):
    """Wrong arguments."""

    exit_code = ExitCode.USAGE


class SpecError(UsageProblem):
    """A cluster spec is wrong; the message lists every problem with its position."""


class NotFound(CliError):
    """No such cluster, job, node or file."""

    exit_code = ExitCode.NOT_FOUND


class Busy(CliError):
    """Another clusterctl works on this cluster."""

    exit_code = ExitCode.BUSY


class Unreachable(CliError):
    """The cluster's head does not answer."""

    exit_code = ExitCode.UNREACHABLE


class Denied(CliError):
    """Credentials were refused."""

    exit_code = ExitCode.DENIED


class TimedOut(CliError):
    """Something did not happen before its deadline."""

    exit_code = ExitCode.TIMED_OUT


class Interrupted(CliError):
    """Ctrl-C, after what had to be cleaned up was."""

    exit_code = ExitCode.INTERRUPTED


SIGNAL_BASE = 128
"""A process ended by signal n gives the status SIGNAL_BASE + n, as shells do."""


def process_status(returncode: int) -> int:
    """The exit status to pass on for a child's `returncode` (negative: ended by that signal)."""
    return SIGNAL_BASE - returncode if returncode < 0 else returncode


def from_provider(error: Exception) -> CliError:
    """Translates any `autoscaler.provider.ProviderError` (or setup error) for the terminal."""
    from autoscaler import provider

    if isinstance(error, provider.Auth):
        return Denied(f"the credentials are refused: {error}", "`clusterctl check FILE` asks again.")
    if isinstance(error, provider.NotFound):
        return NotFound(str(error))
    if isinstance(error, provider.Config):
        return UsageProblem(f"the provider refuses the configuration: {error}")
    if isinstance(error, provider.Capacity | provider.Quota):
        return CliError(
            f"no machine to be had: {error}", "Try another node type or zone, or try again later."
        )
    if isinstance(error, provider.SetupError):
        return SetupFailed(str(error))
    return CliError(f"the provider failed: {error}", "This may pass: run the command again.")
