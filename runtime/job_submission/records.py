"""Jobs as the head describes them. Pure."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from enum import StrEnum
from typing import Any


class JobStatus(StrEnum):
    """PENDING -> RUNNING -> SUCCEEDED | FAILED | STOPPED."""

    PENDING = "PENDING"
    RUNNING = "RUNNING"
    STOPPED = "STOPPED"
    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"

    def is_terminal(self) -> bool:
        """Whether it will never change again."""
        return self in (JobStatus.STOPPED, JobStatus.SUCCEEDED, JobStatus.FAILED)


class JobType(StrEnum):
    """Submitted, or a program that connected by itself."""

    SUBMISSION = "SUBMISSION"
    DRIVER = "DRIVER"


class JobErrorType(StrEnum):
    """Why a job failed, for programs that ask: the entrypoint itself, or its environment."""

    RUNTIME_ENV_SETUP_FAILURE = "RUNTIME_ENV_SETUP_FAILURE"
    JOB_ENTRYPOINT_COMMAND_START_ERROR = "JOB_ENTRYPOINT_COMMAND_START_ERROR"
    JOB_ENTRYPOINT_COMMAND_ERROR = "JOB_ENTRYPOINT_COMMAND_ERROR"


@dataclasses.dataclass
class DriverInfo:
    """The process of a job that connected to the cluster."""

    id: str  # the job's id
    node_ip_address: str
    pid: str


@dataclasses.dataclass
class JobInfo:
    """A submitted job. Times are unix milliseconds; `message` says in words how it stands."""

    status: JobStatus
    entrypoint: str
    message: str | None = None
    error_type: str | None = None
    start_time: int | None = None
    end_time: int | None = None
    metadata: dict[str, str] | None = None
    runtime_env: dict[str, Any] | None = None
    driver_node_id: str | None = None
    driver_exit_code: int | None = None

    def __post_init__(self) -> None:
        self.status = JobStatus(self.status)
        if not self.message:
            self.message = _WORDS[self.status]


@dataclasses.dataclass
class JobDetails:
    """A job of either type. `submission_id` is that of `submit_job`, `job_id` that of its last driver."""

    type: JobType
    status: JobStatus
    entrypoint: str
    job_id: str | None = None
    submission_id: str | None = None
    driver_info: DriverInfo | None = None
    message: str | None = None
    error_type: str | None = None
    start_time: int | None = None
    end_time: int | None = None
    metadata: dict[str, str] | None = None
    runtime_env: dict[str, Any] | None = None
    driver_node_id: str | None = None
    driver_exit_code: int | None = None

    def dict(self) -> dict[str, Any]:
        """All fields."""
        return dataclasses.asdict(self)


_WORDS = {
    JobStatus.PENDING: "Job has not started yet.",
    JobStatus.RUNNING: "Job is currently running.",
    JobStatus.STOPPED: "Job was intentionally stopped.",
    JobStatus.SUCCEEDED: "Job finished successfully.",
    JobStatus.FAILED: "Job failed.",
}


def details(answer: Mapping[str, Any]) -> JobDetails:
    """A job's details from the head's JSON."""
    status, code = JobStatus(answer["status"]), answer.get("driver_exit_code")
    message = answer.get("message") or _WORDS[status]
    error = None
    if status is JobStatus.FAILED and code is not None:
        message = f"Job entrypoint command failed with exit code {code}: {message}"
        error = JobErrorType.JOB_ENTRYPOINT_COMMAND_ERROR
    elif status is JobStatus.FAILED and "runtime environment" in message:
        error = JobErrorType.RUNTIME_ENV_SETUP_FAILURE
    elif status is JobStatus.FAILED:
        error = JobErrorType.JOB_ENTRYPOINT_COMMAND_START_ERROR
    elif status is JobStatus.STOPPED:
        message = _WORDS[status]
    driver = answer.get("driver_info")
    return JobDetails(
        type=JobType(answer["type"]),
        status=status,
        entrypoint=answer["entrypoint"],
        job_id=answer.get("job_id"),
        submission_id=answer.get("submission_id") or None,
        driver_info=DriverInfo(**driver) if driver else None,
        message=message,
        error_type=error,
        start_time=answer.get("start_time"),
        end_time=answer.get("end_time"),
        metadata=answer.get("metadata") or {},
        runtime_env=answer.get("runtime_env") or {},
        driver_node_id=answer.get("driver_node_id"),
        driver_exit_code=code,
    )
