"""Machines that do not answer: who asks waits for one once, and from then on it is asked in the background."""

from __future__ import annotations

import threading
from collections.abc import Callable

from autoscaler.provider import ShellError, ShellTimedOut
from clusterctl.shell.target import SshTarget


class Silent(ShellTimedOut):
    """The machine did not answer a moment ago, and was not asked again."""


class Silences:
    """What is known of them in this process. Safe to use from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._errors: dict[SshTarget, ShellTimedOut] = {}
        self._asking: set[SshTarget] = set()

    def note(self, target: SshTarget, error: ShellTimedOut) -> None:
        """The machine has just not answered."""
        with self._lock:
            self._errors[target] = error

    def of(self, target: SshTarget, ask: Callable[[SshTarget], object]) -> Silent | None:
        """Why the machine is held for silent; None when it is not. Meanwhile `ask` finds out whether it still is."""
        with self._lock:
            if target not in self._errors:
                return None
            error = Silent(str(self._errors[target]))
            if target in self._asking:
                return error
            self._asking.add(target)
        # Daemonic: a machine that never answers must not keep the process alive.
        threading.Thread(
            target=self._ask, args=(target, ask), name=f"is {target.host} silent", daemon=True
        ).start()
        return error

    def _ask(self, target: SshTarget, ask: Callable[[SshTarget], object]) -> None:
        found: ShellTimedOut | None = None
        try:
            ask(target)
        except ShellTimedOut as error:
            found = error
        except ShellError:
            found = None  # it says something, and whoever asks next hears it at once
        finally:
            with self._lock:
                self._asking.discard(target)
                if found is None:
                    self._errors.pop(target, None)
                else:
                    self._errors[target] = found


SILENCES = Silences()
"""Of this process."""
