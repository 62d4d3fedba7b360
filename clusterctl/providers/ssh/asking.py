"""Asks a cluster's machines, side by side, and knows for a while what they said."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from types import MappingProxyType
from typing import TypeVar

from autoscaler.provider import CommandResult, ProviderError, ShellError, ShellTimedOut
from clusterctl.shell.ssh import SshShell
from clusterctl.shell.target import SshTarget

from . import claim as claims
from . import hosts
from .checks import Examined, examine
from .claim import Facts
from .silence import SILENCES

T = TypeVar("T")
_ANSWER_S = 10.0
"""A machine that does not say by then what it is counts as one that does not answer."""
_LATELY_S = 5.0
"""What a machine said is believed for so long, where what follows finds out if it is true no more."""


@dataclass(frozen=True, slots=True)
class _Said:
    """What a machine said, and when; `examined`, where it was asked for all of it."""

    at: float
    facts: Facts
    examined: Examined | None = None


class Asking:
    """The machines, by name. A failure is that machine's answer. Safe to use from any thread.

    Args:
        targets: more may come.
        own: the machine where this runs, if it is one of them: it need not enter itself.
        python: what is to run nodes there.
        ports: of the machine `head`, that nobody else may have.
    """

    def __init__(
        self, targets: Mapping[str, SshTarget], own: str, python: str, head: str, ports: Iterable[int]
    ) -> None:
        self._targets = targets
        self._own = own
        self._python = python
        self._ports = {head: tuple(ports)}
        self._looking = threading.Lock()
        self._said: dict[str, _Said] = {}

    def each(self, names: Iterable[str], ask: Callable[[SshTarget], T]) -> dict[str, T | Exception]:
        """Asks anything. A machine that is held for silent is not."""

        def one(name: str) -> T | Exception:
            try:
                return SILENCES.of(self._targets[name], _look) or ask(self._targets[name])
            except (ShellError, ProviderError) as error:
                return error

        names = [*names]
        if not names:
            return {}
        with ThreadPoolExecutor(min(64, len(names)), thread_name_prefix="ssh machines") as pool:
            return dict(zip(names, pool.map(one, names), strict=True))

    def look(self, names: Iterable[str]) -> dict[str, Facts | Exception]:
        """What they are, and whose."""

        def ask(target: SshTarget) -> Facts:
            name = hosts.name_of(target)
            found = claims.look_here() if name == self._own else _look(target)
            self._said[name] = _Said(time.monotonic(), found)
            return found

        return self.each(names, _noting(ask))

    def look_at_all(self, examining: bool) -> dict[str, Facts | Exception]:
        """The same of all; whoever looks `lately` meanwhile waits for what this finds.

        Args:
            examining: they are asked for all that `examine_lately` wants to know next.
        """
        with self._looking:
            if not examining:
                return self.look(self._targets)
            examined = self.examine(self._targets)
            return {name: it.facts if isinstance(it, Examined) else it for name, it in examined.items()}

    def look_lately(self, names: Iterable[str]) -> dict[str, Facts | Exception]:
        """The same, but that a machine which has just said something is not asked again. Others may have taken it
        since."""
        with self._looking:
            names = [*names]
            known = {name: said.facts for name in names if (said := self._lately(name)) is not None}
            looked = self.look(name for name in names if name not in known)
        return {name: known.get(name) or looked[name] for name in names}

    def examine(self, names: Iterable[str]) -> dict[str, Examined | Exception]:
        """The same as `look`, and what would keep them from becoming nodes."""

        def ask(target: SshTarget) -> Examined:
            name = hosts.name_of(target)
            found = examine(target, self._python, self._ports.get(name, ()), _ANSWER_S)
            self._said[name] = _Said(time.monotonic(), found.facts, found)
            return found

        return self.each(names, _noting(ask))

    def examine_lately(self, names: Iterable[str]) -> dict[str, Examined | Exception]:
        """The same, but that a machine which has just said it is not asked again."""
        names = [*names]
        known = {name: said.examined for name in names if (said := self._lately(name)) is not None}
        examined = self.examine(name for name in names if not known.get(name))
        return {name: known.get(name) or examined[name] for name in names}

    def forget(self, names: Iterable[str]) -> None:
        """They are not what they were."""
        for name in names:
            self._said.pop(name, None)

    def _lately(self, name: str) -> _Said | None:
        said = self._said.get(name)
        return said if said is not None and said.at > time.monotonic() - _LATELY_S else None


def tell(target: SshTarget, script: str, env: Mapping[str, str] = MappingProxyType({})) -> CommandResult:
    """Runs a script on a machine, which does not take long."""
    return SshShell(target).ask(script, env=env, timeout_s=_ANSWER_S)


def _look(target: SshTarget) -> Facts:
    return claims.read_facts(tell(target, claims.LOOK).output)


def _noting(ask: Callable[[SshTarget], T]) -> Callable[[SshTarget], T]:
    """The same question; a machine that leaves it unanswered counts as silent."""

    def noting(target: SshTarget) -> T:
        try:
            return ask(target)
        except ShellTimedOut as error:
            SILENCES.note(target, error)
            raise

    return noting
