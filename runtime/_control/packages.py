"""Uploaded packages: deleted when nothing can ask for them any more."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator

from runtime._control.actor_table import ActorTable
from runtime._control.context import Context, Signal
from runtime._control.jobs import JobService
from runtime._control.kv import KvService
from runtime._core.environments import PACKAGE_HOLDS, PACKAGES, packages_in

log = logging.getLogger(__name__)


class PackageSweeper:
    """Keeps the packages that running jobs name, those of jobs whose detached actors live, and those that somebody
    holds (`PACKAGE_HOLDS`). Looks again whenever one of these ends, and when a package comes: its job may have ended
    meanwhile.
    """

    def __init__(self, context: Context, kv: KvService, jobs: JobService, actors: ActorTable) -> None:
        self._context = context
        self._kv = kv
        self._jobs = jobs
        self._actors = actors
        self._wake_at_s = 0.0  # unix time; 0: no timer
        self._signal = Signal()
        self._signal.connect(self._sweep)
        kv.on_change |= {PACKAGES: self.look, PACKAGE_HOLDS: self.look}
        jobs.on_finished.append(lambda *_: self.look())
        actors.on_dead.append(lambda actor: self.look() if actor.spec.detached else None)

    def look(self) -> None:
        """Sweeps at the end of this loop turn."""
        self._signal.set()

    def _sweep(self) -> None:
        present = self._kv.all_keys(PACKAGES)
        if not present and not self._kv.all_keys(PACKAGE_HOLDS):
            return
        needed = {name for text in self._users() for name in packages_in(text)}
        for key in present:
            if key.decode() not in needed:
                log.info("deleting package %s: nobody uses it", key.decode())
                self._kv.drop(PACKAGES, key)

    def _users(self) -> Iterator[str]:
        """The texts that name packages which are needed."""
        for job in self._jobs.running():
            yield job.config
        for actor in self._actors.living():
            if actor.spec.detached:
                job_of_actor = self._jobs.find(actor.spec.job_id)
                yield actor.spec.runtime_env
                yield job_of_actor.config if job_of_actor is not None else ""
        now_s = self._context.wall_time()
        for holder in self._kv.all_keys(PACKAGE_HOLDS):
            text = (self._kv.value(PACKAGE_HOLDS, holder) or b"").decode()
            until_s = json.loads(text)["until_s"]
            if until_s is None or until_s > now_s:
                yield text
                self._wake(until_s, now_s)
            else:
                self._kv.drop(PACKAGE_HOLDS, holder)

    def _wake(self, until_s: float | None, now_s: float) -> None:
        if until_s is None or now_s < self._wake_at_s <= until_s:
            return
        self._wake_at_s = until_s
        self._context.after(until_s - now_s, self.look)
