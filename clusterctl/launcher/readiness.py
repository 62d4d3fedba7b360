"""Waiting until a machine can be set up: until its shell answers, and then until the spec's own command says so."""

from __future__ import annotations

import time
from collections.abc import Callable

from autoscaler.provider import (
    SetupError,
    Shell,
    ShellAuthFailed,
    ShellError,
    ShellLost,
    ShellRefused,
    ShellTimedOut,
)

DEADLINE_S = 300.0
_RETRY_S = 0.25
KEYS_S = 90.0
"""So long a cloud's agent may take to let our key in, when the machine's sshd is there already."""
_KEYS_RETRY_S = 5.0  # an sshd may shut out for longer who is refused more often
_ATTEMPT_S = 30.0
_SHELL = "wait for the shell"
_READY = "ready_command"


def await_shell(shell: Shell, tell: Callable[[str], None], deadline_s: float, keys_s: float = 0.0) -> float:
    """Waits until the shell answers; returns how much of `deadline_s` is left. Refused and timed out are worth waiting
    for; a rejected identity is not, but for `keys_s`, in which a machine may still get its keys.

    Raises:
        SetupError: it does not answer; the reason tells refused, silent and rejected apart.
    """
    deadline = time.monotonic() + deadline_s
    while True:
        try:
            result = shell.run("true", timeout_s=_ATTEMPT_S)
            if result.exit_status == 0:
                return deadline - time.monotonic()
            raise SetupError(_SHELL, f"status {result.exit_status}: {result.output.strip()}".rstrip(": "))
        except ShellAuthFailed as error:
            if time.monotonic() >= deadline - deadline_s + keys_s:
                raise SetupError(_SHELL, f"the machine rejects our identity: {error}") from error
            tell(f"the machine does not know our key yet: {error}")
            time.sleep(_KEYS_RETRY_S)
        except (ShellRefused, ShellTimedOut, ShellLost) as error:
            if time.monotonic() >= deadline:
                kind = "refuses connections" if isinstance(error, ShellRefused) else "does not answer"
                raise SetupError(
                    _SHELL, f"after {deadline_s:g} s the machine still {kind}: {error}"
                ) from error
            tell(f"the shell is not there yet: {error}")
            time.sleep(_RETRY_S)
        except (ShellError, OSError) as error:
            raise SetupError(_SHELL, str(error)) from error


def await_command(shell: Shell, command: str, tell: Callable[[str], None], left_s: float) -> None:
    """Asks again until `command` succeeds. A machine that restarts meanwhile is as good as one that says no.

    Raises:
        SetupError: it did not in time; the reason has its last words.
    """
    deadline = time.monotonic() + left_s
    told = ""
    while True:
        try:
            result = shell.run(command, timeout_s=max(deadline - time.monotonic(), _ATTEMPT_S))
        except (ShellRefused, ShellTimedOut, ShellLost) as error:
            why = str(error)
        except (ShellError, OSError) as error:
            raise SetupError(_READY, str(error)) from error
        else:
            if result.exit_status == 0:
                return
            why = f"exit status {result.exit_status}: {result.output.strip()[-500:]}".rstrip(": ")
        if time.monotonic() >= deadline:
            raise SetupError(_READY, f"the machine did not become ready in time: {why}")
        if why != told:
            tell(f"the machine is not ready yet: {why}")
            told = why
        time.sleep(_RETRY_S)
