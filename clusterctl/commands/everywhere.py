"""A command on several nodes side by side."""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from autoscaler.provider import ProviderError, ShellError
from clusterctl import output
from clusterctl.errors import CliError, process_status
from clusterctl.shell import scripts

from .opened_cluster import label

if TYPE_CHECKING:
    from autoscaler.provider import Machine

    from .opened_cluster import OpenedCluster

NOT_ENTERED = 255
"""The status of a node that could not be entered, as ssh has it."""
_MARK = "CLUSTERCTL_EXEC"
_KILL_S = 5.0
_POLL_S = 0.2


@dataclass(slots=True)
class _Lines:
    """Prints whole lines of several nodes, each with its node's name before it."""

    width: int
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def of(self, name: str, write: Callable[[str], None]) -> Callable[[str], None]:
        def line(text: str) -> None:
            with self._lock:
                write(f"{name.ljust(self.width)} | {text}")

        return line


def run_on(opened: OpenedCluster, machines: Sequence[Machine], command: str, timeout_s: float | None) -> int:
    """Runs a command on machines, prints what it writes there as it comes; returns the worst exit status.

    Ctrl-C kills it on all of them.
    """
    names = [label(machine) for machine in machines]
    lines = _Lines(max(map(len, names)))
    statuses: dict[str, int] = {}
    mark = secrets.token_hex(8)

    def run(machine: Machine, name: str) -> None:
        try:
            env = {**opened.environment(), _MARK: mark}
            result = opened.shell(machine).run(
                command, env=env, timeout_s=timeout_s, on_output=lines.of(name, output.say)
            )
            statuses[machine.id] = process_status(result.exit_status)
        except (ShellError, ProviderError, CliError) as error:
            statuses[machine.id] = NOT_ENTERED
            lines.of(name, output.warn)(str(error))

    _side_by_side(
        [partial(run, machine, name) for machine, name in zip(machines, names, strict=True)],
        on_interrupt=lambda: _kill(opened, [m for m in machines if m.id not in statuses], mark),
    )
    return max(statuses.values())


def _side_by_side(work: Sequence[Callable[[], None]], on_interrupt: Callable[[], None]) -> None:
    """Does all of it at once. When one part fails, or Ctrl-C comes, the rest is ended."""
    failures: list[Exception] = []

    def attempt(one: Callable[[], None]) -> None:
        try:
            one()
        except (
            Exception
        ) as error:  # raised below, where somebody hears of it: nobody reads our output any more, e.g.
            failures.append(error)

    threads = [threading.Thread(target=attempt, args=(one,), daemon=True, name="exec") for one in work]
    for thread in threads:
        thread.start()
    try:
        for thread in threads:
            while thread.is_alive() and not failures:  # a command may take as long as it likes
                thread.join(_POLL_S)
        if failures:
            raise failures[0]
    except BaseException:  # Ctrl-C, too
        on_interrupt()
        for thread in threads:
            thread.join(_KILL_S)
        raise


def _kill(opened: OpenedCluster, machines: Sequence[Machine], mark: str) -> None:
    """Kills the command and all that it started, which are known by a mark in their environment."""
    script = scripts.kill_marked(_MARK, mark)

    def kill(machine: Machine) -> None:
        try:
            opened.shell(machine).run(script, timeout_s=_KILL_S)
        except (ShellError, ProviderError, CliError) as error:
            output.warn(f"{label(machine)}: the command may still run there: {error}")

    threads = [threading.Thread(target=kill, args=(machine,), daemon=True) for machine in machines]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(2 * _KILL_S)
