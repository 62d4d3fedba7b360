"""Runs submitted jobs on the head: each in a folder and a process group of its own, its state kept in the
control store, so that a job outlives whoever submitted it."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import re
import secrets
import shutil
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from clusterctl.jobs import placed
from clusterctl.jobs.records import JobRecord, JobRequest, JobStatus, outcome
from runtime._api.job_environment import JOB_VARIABLE, job_config_json
from runtime._clients.control import ControlClient
from runtime._core import environments
from runtime._core.environments import PACKAGE_HOLDS, PACKAGES, parse_package_uri
from runtime._node.environments import Environments
from runtime._system import settings
from runtime._transport.channel import CallError
from runtime._wire.messages import control as messages
from runtime.compat.ray import python_path
from runtime.runtime_env import of_task

from . import job_processes
from .job_queue import JobQueue, default_limit

log = logging.getLogger(__name__)

JOBS = "jobs"
STOP_WAIT_S = 3.0
_PLACED = (sys.executable, "-m", placed.__name__)
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")


class JobError(Exception):
    """A request about a job that cannot be met. `status` is the HTTP status."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.message = message


class JobSupervisor:
    """All submitted jobs of the cluster. Belongs to the event loop."""

    def __init__(
        self,
        control: ControlClient,
        session_dir: str,
        environment: Mapping[str, str],
        spawn: Callable[..., object],
        limit: int | None = None,
    ) -> None:
        """Args:
        environment: of every job's process; the cluster's address is in it.
        spawn: starts a coroutine in the owner's task group.
        limit: how many jobs run at once; None: by the head's CPUs and memory.
        """
        self._queue = JobQueue(control, limit or default_limit())
        self._control = control
        self._folder = Path(session_dir, "jobs")
        self._logs = Path(session_dir, "logs")
        self.uploads = Path(session_dir, "uploads")
        self._passing_on = asyncio.Lock()
        self._environment = dict(environment)
        self._spawn = spawn
        self._jobs: dict[str, JobRecord] = {}
        self._processes: dict[str, asyncio.subprocess.Process] = {}
        self._graces: dict[str, float] = {}
        self._stopping: set[str] = set()
        self._is_closed = False
        self._changed = asyncio.Condition()
        self._environments = Environments(str(Path(session_dir, "job_environments")), control, _no_config)

    async def recover(self) -> None:
        """Reads the jobs of an earlier head; those that ran then have failed, and those that waited go on waiting."""
        await asyncio.to_thread(shutil.rmtree, self.uploads, ignore_errors=True)
        waiting: list[tuple[JobRecord, JobRequest]] = []
        keys = await self._control.call(messages.KvKeys(JOBS))
        for key in keys.keys:
            value = (await self._control.call(messages.KvGet(JOBS, key))).value
            if value is None:
                continue
            record = msgspec.json.decode(value, type=JobRecord)
            self._jobs[record.submission_id] = record
            request = await self._queue.kept(record.submission_id)
            if request is not None and record.status is JobStatus.PENDING:
                waiting.append((record, request))
            elif not record.status.is_final:
                await job_processes.end(record.submission_id, None)  # of a head that crashed they run on
                await self._store(
                    msgspec.structs.replace(
                        record,
                        status=JobStatus.FAILED,
                        message="the head was restarted while the job ran",
                        end_time=_now_ms(),
                    )
                )

        for record, request in sorted(waiting, key=lambda pair: pair[0].start_time or 0):
            self._queue.add(record.submission_id, request)
        self._begin_next()

    def set_limit(self, limit: int | None) -> None:
        """How many jobs run at once from now on; None: by the head's CPUs and memory."""
        self._queue.limit = limit or default_limit()
        self._begin_next()

    async def submit(self, request: JobRequest) -> JobRecord:
        """Accepts a job; it starts at once, or when the jobs before it have made room.

        Raises:
            JobError: the request is wrong, or the id is taken.
        """
        if self._is_closed:
            raise JobError(503, "the cluster is ending, for it was not used: bring it up again first")
        if not request.entrypoint.strip():
            raise JobError(400, "the entrypoint is empty")
        name = request.submission_id or f"job-{secrets.token_hex(4)}"
        if not _NAME.fullmatch(name):
            raise JobError(400, f"'{name}' is no valid job id: letters, digits, '.', '_' and '-' only")
        if name in self._jobs:
            raise JobError(409, f"Job with submission_id {name} already exists: choose another")
        try:
            runtime_env = of_task(request.runtime_env)
        except (TypeError, ValueError) as error:
            raise JobError(400, f"runtime_env: {error}") from error
        uris = [runtime_env.working_dir(), *runtime_env.py_modules()]
        record = JobRecord(
            submission_id=name,
            entrypoint=request.entrypoint,
            status=JobStatus.PENDING,
            start_time=self._next_start_time(),
            metadata=request.metadata,
            runtime_env=dict(runtime_env),
        )
        self._jobs[name] = record  # from here on the name is taken: others may submit while this waits
        try:
            for uri in uris:
                package = parse_package_uri(uri)
                if package is not None and not await self.has_package(package[0]):
                    raise JobError(404, f"there is no package {uri}; upload it first")
            await self._control.call(messages.KvPut(PACKAGE_HOLDS, _hold_of(name), environments.hold(uris)))
            await self._queue.keep(name, request)
            await self._store(record)
        except BaseException:  # whatever it was, there is no such job
            del self._jobs[name]
            raise
        self._queue.add(name, request)
        self._begin_next()
        return self._queue.shown(record)

    def get(self, name: str) -> JobRecord:
        """A job's record.

        Raises:
            JobError: there is no such job.
        """
        record = self._jobs.get(name)
        if record is None:
            raise JobError(404, f"Job {name} does not exist; `clusterctl job list` shows all")
        return self._queue.shown(record)

    def list(self) -> list[JobRecord]:
        """All jobs, oldest first."""
        return sorted(map(self._queue.shown, self._jobs.values()), key=lambda record: record.start_time or 0)

    async def stop(self, name: str) -> bool:
        """Ends a job and all its processes; False when it had ended already."""
        record = self.get(name)
        if record.status.is_final:
            return False
        if self._queue.remove(name):
            await self._queue.forget(name)
            await self._finish(record, JobStatus.STOPPED, None, "stopped on request")
            return True
        self._stopping.add(name)
        process = self._processes.get(name)
        if process is not None:
            await job_processes.end(name, process.pid, self._graces[name])
        await self.wait_final(name, STOP_WAIT_S)
        return True

    async def delete(self, name: str) -> None:
        """Forgets a job that has ended, its output and its folder."""
        record = self.get(name)
        if not record.status.is_final:
            raise JobError(
                400, f"Job '{name}' is in a non-terminal state, {record.status.value}; stop it first"
            )
        del self._jobs[name]
        await self._control.call(messages.KvDelete(JOBS, name.encode()))
        self.log_file(name).unlink(missing_ok=True)
        await asyncio.to_thread(shutil.rmtree, self._folder / name, ignore_errors=True)

    def close_if_unused(self) -> bool:
        """Takes no more jobs, unless there is one that has not ended; whether it takes none."""
        self._is_closed = all(record.status.is_final for record in self._jobs.values())
        return self._is_closed

    async def close(self) -> None:
        """Stops every job, because the head ends."""
        self._queue.close()
        for name in [*self._processes]:
            await self.stop(name)
        await self._environments.close()
        await asyncio.to_thread(self._environments.remove_files)

    def log_file(self, name: str) -> Path:
        return self._logs / f"job-{name}.log"

    def read_log(self, name: str, offset: int, limit: int) -> bytes:
        """Output from byte `offset` on, at most `limit` bytes."""
        try:
            with open(self.log_file(name), "rb") as file:
                file.seek(offset)
                return file.read(limit)
        except FileNotFoundError:
            return b""

    async def wait_final(self, name: str, timeout_s: float) -> None:
        """Returns when the job has ended, or after the time."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s), self._changed:
                await self._changed.wait_for(
                    lambda: name not in self._jobs or self._jobs[name].status.is_final
                )

    async def has_package(self, name: str) -> bool:
        """Whether that package was uploaded; if so, it stays for a while."""
        key = name.encode()
        await self._hold_upload(name)
        return key in (await self._control.call(messages.KvKeys(PACKAGES, key))).keys

    async def put_package(self, name: str, file: Path) -> None:
        """Keeps a package for the nodes to fetch: for a while, and as long as jobs name it. The control store takes it
        in one message, so one package at a time is in memory."""
        await self._hold_upload(name)
        async with self._passing_on:
            data = await asyncio.to_thread(file.read_bytes)
            await self._control.call(messages.KvPut(PACKAGES, name.encode(), data), 120.0)

    # -- inside

    def _next_start_time(self) -> int:
        """Now in milliseconds, but later than every earlier job's: the line keeps its order over a restart of the head,
        also for jobs of one millisecond and when the clock was set back."""
        return max(_now_ms(), 1 + max((record.start_time or 0 for record in self._jobs.values()), default=0))

    async def _hold_upload(self, package: str) -> None:
        hold = environments.hold([package], time.time() + settings.UPLOAD_KEPT_S.get_or_default())
        await self._control.call(messages.KvPut(PACKAGE_HOLDS, f"upload {package}".encode(), hold))

    def _begin_next(self) -> None:
        """Starts the jobs for which there is room."""
        while (found := self._queue.next()) is not None:
            name, request = found
            self._spawn(self._run(self._jobs[name], request))

    async def _run(self, record: JobRecord, request: JobRequest) -> None:
        name = record.submission_id
        folder = self._folder / name
        key = (name.encode(), environments.canonical(record.runtime_env))
        config = job_config_json(record.runtime_env, request.overridable)
        try:
            await self._queue.forget(name)
            if request.wants():
                await self._run_in(record, folder, "", self._placed(record, request, config), _PLACED)
                return
            try:
                place = await self._environments.prepare(key)
            except CallError as error:
                text = f"Failed to set up runtime environment.\n{error.message}"
                await self._finish(record, JobStatus.FAILED, None, text)
                return
            if name in self._stopping:
                await self._finish(record, JobStatus.STOPPED, None, "stopped on request")
                return
            variables = {**place.env, JOB_VARIABLE: config}
            if request.ray_compat:
                given = variables.get("PYTHONPATH") or self._environment.get("PYTHONPATH", "")
                variables["PYTHONPATH"] = python_path(given)
            await self._run_in(record, folder, place.cwd, variables, ("/bin/sh", "-c", record.entrypoint))
        except CallError as error:
            text = f"the control store did not hear what became of the job: {error.message}"
            log.error("job %s: %s", name, text)
            if not self._jobs[name].status.is_final:
                await self._finish(self._jobs[name], JobStatus.FAILED, None, text)
        except OSError as error:
            await self._finish(record, JobStatus.FAILED, None, f"the job could not be started: {error}")
        finally:
            self._environments.release(key)
            self._queue.ended(name)
            self._begin_next()
            await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)

    def _placed(self, record: JobRecord, request: JobRequest, config: str) -> dict[str, str]:
        """The environment of the program that runs the entrypoint on another node."""
        variables = {
            "CLUSTERCTL_ADDRESS": self._environment["CLUSTERCTL_ADDRESS"],
            "CLUSTERCTL_SUBMISSION_ID": record.submission_id,
            JOB_VARIABLE: config,
        }
        placement = placed.Placement(
            command=record.entrypoint,
            wants=request.wants(),
            variables=variables,
            ray_compat=request.ray_compat,
        )
        return {placed.VARIABLE: msgspec.json.encode(placement).decode(), JOB_VARIABLE: config}

    async def _run_in(
        self,
        record: JobRecord,
        folder: Path,
        working_dir: str,
        variables: Mapping[str, str],
        command: Sequence[str],
    ) -> None:
        name = record.submission_id
        await asyncio.to_thread(_make_folder, folder, working_dir)
        process = await self._start(record, folder, variables, command)
        self._processes[name] = process
        self._graces[name] = placed.STOP_S if command is _PLACED else job_processes.GRACE_S
        running = msgspec.structs.replace(record, status=JobStatus.RUNNING)
        try:
            await self._store(running)
            if name in self._stopping:
                await job_processes.end(name, process.pid, self._graces[name])
            log.info("job %s runs as process %d", name, process.pid)
            returncode = await process.wait()  # a job may take as long as it likes
        finally:
            if process.returncode is None:  # something failed: no job runs on that nobody looks after
                await job_processes.end(name, process.pid, self._graces[name])
            await _end_group(process.pid)
            del self._processes[name], self._graces[name]
        status, code, message = outcome(returncode, name in self._stopping)
        await self._finish(running, status, code, message)

    async def _start(
        self, record: JobRecord, folder: Path, variables: Mapping[str, str], command: Sequence[str]
    ) -> asyncio.subprocess.Process:
        env = {**self._environment, **variables}
        env[job_processes.MARK] = record.submission_id
        env["PYTHONUNBUFFERED"] = "1"
        self._logs.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(
            self.log_file(record.submission_id), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600
        )
        try:
            return await asyncio.create_subprocess_exec(
                *command,
                cwd=folder,
                env=env,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=descriptor,
                stderr=descriptor,
                start_new_session=True,
            )
        finally:
            os.close(descriptor)

    async def _finish(self, record: JobRecord, status: JobStatus, code: int | None, message: str) -> None:
        log.info("job %s: %s %s", record.submission_id, status.value, message)
        await self._store(
            msgspec.structs.replace(
                record, status=status, driver_exit_code=code, message=message, end_time=_now_ms()
            )
        )

    async def _store(self, record: JobRecord) -> None:
        """Here first: whoever asks hears what became of a job also while the control store is away."""
        self._jobs[record.submission_id] = record
        async with self._changed:
            self._changed.notify_all()
        key = record.submission_id.encode()
        await self._control.call(messages.KvPut(JOBS, key, msgspec.json.encode(record)))
        if record.status.is_final:
            await self._control.call(messages.KvDelete(PACKAGE_HOLDS, _hold_of(record.submission_id)))


def _hold_of(submission_id: str) -> bytes:
    return f"job {submission_id}".encode()


def _make_folder(folder: Path, working_dir: str) -> None:
    """The job's current directory: a copy, since what it writes must not change what its workers get."""
    folder.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    if working_dir:
        shutil.copytree(working_dir, folder)
    else:
        folder.mkdir(mode=0o700)


async def _no_config(_job_id: bytes) -> Mapping[str, Any]:
    """A submitted job is not configured but by its environment, which is named in full."""
    return {}


async def _end_group(group: int) -> None:
    """Kills what the job left behind in its process group."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(group, signal.SIGKILL)


def _now_ms() -> int:
    return int(time.time() * 1000)
