"""The jobs that have anything on this node: their configuration, their driver if it is here, and the place
their workers run in.
"""

from __future__ import annotations

import asyncio
import json
import logging
from dataclasses import dataclass, field
from typing import Any

from runtime._clients.control import ControlClient
from runtime._transport.channel import CallError
from runtime._wire.messages.control import GetJob, JobInfo

from .processes import Process
from .working_dir import WorkerPlace, prepare_place

log = logging.getLogger(__name__)


@dataclass(slots=True, eq=False)
class Job:
    """One job as this node knows it."""

    info: JobInfo
    config: dict[str, Any]
    driver: Process | None = None
    finished: bool = False
    places: dict[str, asyncio.Task[WorkerPlace]] = field(default_factory=dict)

    @property
    def log_to_driver(self) -> bool:
        return bool(self.config.get("log_to_driver", True))


class JobTable:
    """Jobs by id. What is missing is asked of the control store, once."""

    def __init__(self, control: ControlClient, session_dir: str) -> None:
        self._control = control
        self._session_dir = session_dir
        self._jobs: dict[bytes, Job] = {}
        self._asking: dict[bytes, asyncio.Task[Job]] = {}

    def add(self, info: JobInfo, driver: Process | None = None) -> Job:
        """A job whose driver registered here, or that the control store told of."""
        job = self._jobs.get(info.job_id)
        if job is None:
            job = self._jobs[info.job_id] = Job(info, _parse(info.config))
        if driver is not None:
            job.driver = driver
        job.finished = job.finished or info.state == "FINISHED"
        return job

    def get(self, job_id: bytes) -> Job | None:
        return self._jobs.get(job_id)

    def drivers(self) -> list[Process]:
        """The drivers of this node."""
        return [job.driver for job in self._jobs.values() if job.driver is not None]

    async def load(self, job_id: bytes) -> Job:
        """The job, asked of the control store when it is new here.

        Raises:
            CallError: the control store does not know it, or cannot be reached.
        """
        job = self._jobs.get(job_id)
        if job is not None:
            return job
        task = self._asking.get(job_id)
        if task is None:
            task = asyncio.get_running_loop().create_task(self._ask(job_id))
            self._asking[job_id] = task
            task.add_done_callback(lambda _: self._asking.pop(job_id, None))
        return await asyncio.shield(task)

    async def place(self, job_id: bytes, runtime_env: str) -> WorkerPlace:
        """Where the job's workers run: its files are fetched and unpacked before the first one starts.

        Raises:
            CallError: RUNTIME_ENV when that fails; a later call tries again.
        """
        job = await self.load(job_id)
        task = job.places.get(runtime_env)
        if task is None:
            task = asyncio.get_running_loop().create_task(
                prepare_place(job.config, runtime_env, self._session_dir, self._control)
            )
            job.places[runtime_env] = task
        try:
            return await asyncio.shield(task)
        except CallError:
            if job.places.get(runtime_env) is task:
                del job.places[runtime_env]
            raise

    def ready_place(self, job_id: bytes, runtime_env: str) -> WorkerPlace | None:
        """The place when it is there already."""
        job = self._jobs.get(job_id)
        task = job.places.get(runtime_env) if job is not None else None
        if task is None or not task.done() or task.cancelled() or task.exception() is not None:
            return None
        return task.result()

    def finish(self, job_id: bytes) -> Job | None:
        """The job has ended; it is kept, since detached actors of it may live on."""
        job = self._jobs.get(job_id)
        if job is not None:
            job.finished = True
        return job

    def forget(self, job_id: bytes) -> None:
        """Nothing of the job is left here."""
        self._jobs.pop(job_id, None)

    def close(self) -> None:
        """Ends what is still being asked or prepared."""
        for task in [*self._asking.values(), *(t for j in self._jobs.values() for t in j.places.values())]:
            task.cancel()

    async def _ask(self, job_id: bytes) -> Job:
        return self.add(await self._control.call(GetJob(job_id)))


def _parse(config: str) -> dict[str, Any]:
    try:
        parsed = json.loads(config) if config else {}
    except ValueError as error:
        log.error("a job's configuration is no JSON: %s", error)
        return {}
    return parsed if isinstance(parsed, dict) else {}
