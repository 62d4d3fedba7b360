"""Pickled classes and functions that drivers put here: deleted when no process can ask for them any more."""

from __future__ import annotations

import logging

from runtime._control.actor_table import ActorTable
from runtime._control.context import Signal
from runtime._control.jobs import JobService
from runtime._control.kv import KvService
from runtime._wire.messages.control import DEFINITIONS

log = logging.getLogger(__name__)


class DefinitionSweeper:
    """Deletes all definitions when no job runs and no actor lives.

    Not one by one: any process of a job or of a detached actor may have put a definition once, or got it from another,
    and makes actors of it later without asking whether it is still here.
    """

    def __init__(self, kv: KvService, jobs: JobService, actors: ActorTable) -> None:
        self._kv = kv
        self._jobs = jobs
        self._actors = actors
        self._signal = Signal()
        self._signal.connect(self._sweep)
        jobs.on_finished.append(lambda *_: self.look())
        actors.on_dead.append(lambda _: self.look())

    def look(self) -> None:
        """Sweeps at the end of this loop turn."""
        if not self._jobs.running():
            self._signal.set()

    def _sweep(self) -> None:
        if self._jobs.running() or self._actors.living():
            return
        keys = self._kv.all_keys(DEFINITIONS)
        for key in keys:
            self._kv.drop(DEFINITIONS, key)
        if keys:
            log.info("deleted %d definitions of classes: no job runs, and no actor lives", len(keys))
