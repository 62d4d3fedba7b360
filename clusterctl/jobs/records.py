"""A submitted job, with the field names of Ray's job API. Pure."""

from __future__ import annotations

from enum import Enum
from typing import Any

import msgspec


class JobStatus(Enum):
    """PENDING -> RUNNING -> SUCCEEDED | FAILED | STOPPED."""

    PENDING = "PENDING"
    RUNNING = "RUNNING"
    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"
    STOPPED = "STOPPED"

    @property
    def is_final(self) -> bool:
        return self in (JobStatus.SUCCEEDED, JobStatus.FAILED, JobStatus.STOPPED)


class JobRecord(msgspec.Struct, kw_only=True, frozen=True):
    """One job. Times are unix milliseconds; `driver_exit_code` is 128 + n when signal n ended the driver."""

    submission_id: str
    entrypoint: str
    status: JobStatus
    message: str = ""
    type: str = "SUBMISSION"  # DRIVER: a program that connected by itself
    job_id: str | None = None
    start_time: int | None = None
    end_time: int | None = None
    metadata: dict[str, str] = {}
    runtime_env: dict[str, Any] = {}
    driver_exit_code: int | None = None
    driver_info: dict[str, str] | None = (
        None  # id, node_ip_address and pid of its last driver, while it is known
    )
    driver_node_id: str | None = None


class JobRequest(msgspec.Struct, kw_only=True, frozen=True):
    """What `POST /api/jobs/` takes. `runtime_env` is a `runtime.runtime_env.RuntimeEnv` without local files.
    `overridable` are those of its fields that nobody asked for: the program's own `init` may name others.
    `ray_compat`: its Pythons find this engine as `ray`. What begins with `entrypoint_` is asked of the node on which
    the entrypoint itself runs; without any of it that is the head."""

    entrypoint: str
    submission_id: str | None = None
    runtime_env: dict[str, Any] = {}
    metadata: dict[str, str] = {}
    overridable: list[str] = []
    ray_compat: bool = False
    entrypoint_num_cpus: float | None = None
    entrypoint_num_gpus: float | None = None
    entrypoint_memory: int | None = None
    entrypoint_resources: dict[str, float] | None = None
    entrypoint_label_selector: dict[str, str] | None = None

    def wants(self) -> dict[str, Any]:
        """What the entrypoint asks of its node, by the names of an actor's options; empty: nothing."""
        given = {
            "num_cpus": self.entrypoint_num_cpus,
            "num_gpus": self.entrypoint_num_gpus,
            "memory": self.entrypoint_memory,
            "resources": self.entrypoint_resources,
            "label_selector": self.entrypoint_label_selector,
        }
        return {name: value for name, value in given.items() if value}


def outcome(returncode: int, stopped: bool) -> tuple[JobStatus, int, str]:
    """What the end of the driver process means: status, exit code, message."""
    code = 128 - returncode if returncode < 0 else returncode
    how = f"was ended by signal {-returncode}" if returncode < 0 else f"exited with status {returncode}"
    if stopped:
        return JobStatus.STOPPED, code, "stopped on request"
    if returncode == 0:
        return JobStatus.SUCCEEDED, 0, ""
    return JobStatus.FAILED, code, f"the entrypoint {how}"
