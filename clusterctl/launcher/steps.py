"""The steps that turn a machine into a node, and how they are carried out: through the machine's shell, logged, and
again where the connection breaks.
"""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import IO

from autoscaler.provider import (
    CommandTimedOut,
    SetupError,
    Shell,
    ShellError,
    ShellLost,
    ShellTimedOut,
)
from clusterctl.shell import archive, scripts
from clusterctl.sync import transfer
from clusterctl.sync.transfer import Mount, SyncError

from . import readiness

_STEP_TIMEOUT_S = 1800.0
_ATTEMPTS = 3
_BACK_S = 60.0
"""So long a machine whose connection broke, or that did not answer, may be silent."""
_LAST_LINES = 10


@dataclass(frozen=True, slots=True)
class Step:
    """One step: bring over `mounts`, or run `command`.

    Attributes:
        input: what the command finds in its standard input, as a tar.
        is_users: the command is the spec's.
        on_machine: also where the node is a container.
    """

    name: str
    command: str = ""
    mounts: tuple[Mount, ...] = ()
    timeout_s: float = _STEP_TIMEOUT_S
    input: tuple[archive.File, ...] = ()
    is_users: bool = False
    on_machine: bool = False


class SetupLog:
    """The log of one node's setup: a line per step and its output, each with the time."""

    def __init__(self, file: IO[str]) -> None:
        self._file = file
        self.last: list[str] = []

    def write(self, text: str) -> None:
        self._file.write(f"{time.strftime('%H:%M:%S')} {text}\n")
        self._file.flush()

    def output(self, line: str) -> None:
        self.write(f"  {line}")
        self.last = [*self.last, line][-_LAST_LINES:]


class Runner:
    """Carries out the steps of one node.

    Args:
        shell: the machine's.
        inside: the node's: that of its container, if it has one.
        env: of the spec's commands.
        digests: where digests of the mounts' files are kept.
        on_step: told the name of each step that begins.
    """

    def __init__(
        self,
        shell: Shell,
        inside: Shell,
        log: SetupLog,
        env: Mapping[str, str],
        digests: str = "",
        on_step: Callable[[str], None] = lambda name: None,
    ) -> None:
        self._shell = shell
        self._inside = inside
        self._log = log
        self._env = env
        self._digests = digests
        self._on_step = on_step

    def run(self, steps: Iterable[Step]) -> str:
        """Runs the steps in order; returns what the last one printed.

        Raises:
            SetupError: a step failed.
        """
        output = ""
        for step in steps:
            output = self._run(step)
        return output

    def _run(self, step: Step) -> str:
        """One whose connection breaks, or that cannot begin, is run again when the machine answers again: steps are
        safe to repeat."""
        shell = self._shell if step.on_machine else self._inside
        self._on_step(step.name)
        for left in reversed(range(_ATTEMPTS)):
            began = time.monotonic()
            is_shown = step.is_users or "\n" not in step.command  # programs of ours are long
            self._log.write(f"step: {step.name}" + (f": {step.command}" if step.command and is_shown else ""))
            self._log.last = []
            try:
                output = self._attempt(step, shell)
                self._log.write(f"done in {time.monotonic() - began:.2f} s")
                return output
            except CommandTimedOut as error:
                raise self._failed(step, str(error)) from error
            except (ShellLost, ShellTimedOut) as error:
                if not left:
                    raise self._failed(step, f"{error}, {_ATTEMPTS} times") from error
                self._log.write(f"{error}; once more")
                readiness.await_shell(shell, self._log.write, _BACK_S)
            except (ShellError, SyncError, OSError) as error:
                raise self._failed(step, str(error)) from error
        raise AssertionError("the last attempt returns or raises")

    def _attempt(self, step: Step, shell: Shell) -> str:
        if step.mounts:
            bring(shell, step.mounts, self._digests, self._log.output)
            return ""
        result = shell.run(
            in_bash(step.command) if step.is_users else step.command,
            env=self._env if step.is_users else None,
            timeout_s=step.timeout_s,
            on_output=self._log.output,
            stdin=archive.packed(step.input) if step.input else None,
        )
        if result.exit_status != 0:
            raise self._failed(step, f"exit status {result.exit_status}")
        return result.output

    def _failed(self, step: Step, why: str) -> SetupError:
        reason = f"{why}: " + "\n  ".join(self._log.last) if self._log.last else why
        self._log.write(f"FAILED: {reason}")
        return SetupError(step.name, reason)


def in_bash(command: str) -> str:
    """The command for bash, which commands in YAMLs are mostly written for; for sh on a machine without it.

    Debian's bash reads ~/.bashrc whenever it believes that sshd has started it, which would make a difference between
    ways into a machine.
    """
    evaluate = shlex.quote(scripts.evaluate())
    return (
        f"unset SSH_CLIENT SSH2_CLIENT\nexport {scripts.VARIABLE}={shlex.quote(command)}\n"
        f'! shell=$(command -v bash) || exec "$shell" --norc -c {evaluate}\nexec sh -c {evaluate}'
    )


def bring(
    shell: Shell, mounts: Sequence[Mount], digests: str, tell: Callable[[str], None] = lambda line: None
) -> None:
    """Makes the mounts on the machine as they are here.

    Raises:
        SyncError: a file cannot be read here or written there.
        ShellError: the machine cannot be reached.
    """
    for done in transfer.push(shell, mounts, transfer.manifests(mounts, digests)):
        tell(f"{done.target}: {done.changes.describe()}, {done.entries} in all")
