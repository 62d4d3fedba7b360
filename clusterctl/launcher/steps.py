"""The steps that turn a machine into a node, and how they are carried out: through the machine's shell, logged, again
where the connection breaks, and in as few round trips as there can be.
"""

from __future__ import annotations

import os
import shlex
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import IO

from autoscaler.provider import (
    CommandResult,
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
_NEXT = "\x1enext"
"""The line between what two steps of one round trip print."""


@dataclass(frozen=True, slots=True)
class Step:
    """One step: copy `source` to `target`, bring over `mounts`, or run `command`.

    Attributes:
        input: what the command finds in its standard input, as a tar.
        unless: a command: when it succeeds, the step has been done before.
        is_users: the command is the spec's.
        on_machine: also where the node is a container.
    """

    name: str
    command: str = ""
    source: str = ""
    target: str = ""
    mounts: tuple[Mount, ...] = ()
    timeout_s: float = _STEP_TIMEOUT_S
    input: tuple[archive.File, ...] = ()
    unless: str = ""
    is_users: bool = False
    on_machine: bool = False

    @property
    def is_plain(self) -> bool:
        """A command of ours, and no more."""
        return not (self.source or self.mounts or self.unless or self.is_users)


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


def trips(steps: Sequence[Step]) -> list[tuple[Step, ...]]:
    """The steps by round trip: commands of ours that follow each other share one. There is one input for all of them,
    so only the first may have any."""
    out: list[tuple[Step, ...]] = []
    for step in steps:
        before = out[-1][-1] if out else None
        if (
            before is not None
            and (before.is_plain and step.is_plain and not step.input)
            and before.on_machine == step.on_machine
        ):
            out[-1] = (*out[-1], step)
        else:
            out.append((step,))
    return out


class Trip:
    """One round trip.

    Args:
        env: of the spec's commands.
        digests: where digests of the mounts' files are kept.
        on_step: told the name of each step that begins.
    """

    def __init__(
        self,
        steps: Sequence[Step],
        shell: Shell,
        log: SetupLog,
        env: Mapping[str, str],
        digests: str = "",
        on_step: Callable[[str], None] = lambda name: None,
    ) -> None:
        self._steps = steps
        self._shell = shell
        self._log = log
        self._env = env
        self._digests = digests
        self._on_step = on_step
        self._index = 0
        self._began = 0.0

    def run(self) -> str:
        """Runs its steps; one whose connection breaks, or that cannot begin, is run again, with those before it, when
        the machine answers again: steps are safe to repeat. Returns what the last one printed.

        Raises:
            SetupError: a step failed.
        """
        for left in reversed(range(_ATTEMPTS)):
            self._begin(0)
            try:
                output = self._attempt()
                self._log.write(self._done())
                return output
            except CommandTimedOut as error:
                raise self._failed(str(error)) from error
            except (ShellLost, ShellTimedOut) as error:
                if not left:
                    raise self._failed(f"{error}, {_ATTEMPTS} times") from error
                self._log.write(f"{error}; once more")
                readiness.await_shell(self._shell, self._log.write, _BACK_S)
            except (ShellError, SyncError, OSError) as error:
                raise self._failed(str(error)) from error
        raise AssertionError("the last attempt returns or raises")

    def _attempt(self) -> str:
        step = self._steps[0]
        if step.unless and self._shell.run(step.unless, timeout_s=step.timeout_s).exit_status == 0:
            self._log.write("it is there already")
            return ""
        if step.source:
            if not os.path.exists(step.source):
                raise self._failed(f"there is no {step.source}")
            self._shell.put(step.source, step.target)
            return ""
        if step.mounts:
            bring(self._shell, step.mounts, self._digests, self._log.output)
            return ""
        result: CommandResult = self._shell.run(
            in_bash(step.command) if step.is_users else self._script(),
            env=self._env if step.is_users else None,
            timeout_s=sum(step.timeout_s for step in self._steps),
            on_output=self._take,
            stdin=archive.packed(step.input) if step.input else None,
        )
        if result.exit_status != 0:
            raise self._failed(f"exit status {result.exit_status}")
        return result.output.rpartition(f"{_NEXT}\n")[2]

    def _script(self) -> str:
        *first, last = (step.command for step in self._steps)
        return "".join(f"(\n{command}\n) || exit\necho '{_NEXT}'\n" for command in first) + last

    def _take(self, line: str) -> None:
        if line == _NEXT and self._index + 1 < len(self._steps):
            self._log.write(self._done())
            self._begin(self._index + 1)
        else:
            self._log.output(line)

    def _begin(self, index: int) -> None:
        self._index, self._began = index, time.monotonic()
        step = self._steps[index]
        self._on_step(step.name)
        self._log.write(f"step: {step.name}" + (f": {step.command}" if step.command else ""))
        self._log.last = []

    def _done(self) -> str:
        return f"done in {time.monotonic() - self._began:.2f} s"

    def _failed(self, why: str) -> SetupError:
        reason = f"{why}: " + "\n  ".join(self._log.last) if self._log.last else why
        self._log.write(f"FAILED: {reason}")
        return SetupError(self._steps[self._index].name, reason)


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
