"""The jobs that have anything on this node: their configuration, and their driver if it is here."""

from __future__ import annotations

import asyncio
import json
import logging
from typing import Any

import msgspec

from runtime._clients.control import ControlClient
from runtime._wire.messages.control import GetJob, JobInfo

from .processes import Process

log = logging.getLogger(__name__)


class Job(msgspec.Struct, eq=False):
    """One job as this node knows it."""

    info: JobInfo
    config: dict[str, Any]
    driver: Process | None = None
    finished: bool = False

    @property
    def log_to_driver(self) -> bool:
        return bool(self.config.get("log_to_driver", True))


class JobTable:
    """Jobs by id. What is missing is asked of the control store, once."""

    def __init__(self, control: ControlClient) -> None:
        self._control = control
        self._jobs: dict[bytes, Job] = {}
        self._asking: dict[bytes, asyncio.Task[Job]] = {}

    def add(self, info: JobInfo, driver: Process | None = None) -> Job:
        """A job whose driver registered here, or that the control store described."""
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

    def running(self) -> list[bytes]:
        """The ids of the jobs that have not ended."""
        return [job_id for job_id, job in self._jobs.items() if not job.finished]

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

    async def config(self, job_id: bytes) -> dict[str, Any]:
        """The job's configuration.

        Raises:
            CallError: see `load`.
        """
        return (await self.load(job_id)).config

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
        """Ends what is still being asked."""
        for task in self._asking.values():
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
