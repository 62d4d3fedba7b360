"""The errors of `runtime.serve`.

RayServeException
    BackPressureError
    DeploymentUnavailableError
    ReplicaUnavailableError
    RequestCancelledError       also a TaskCancelledError
    gRPCStatusError
"""

from __future__ import annotations

from typing import Any

from runtime.exceptions import TaskCancelledError

__all__ = [
    "BackPressureError",
    "DeploymentUnavailableError",
    "RayServeException",
    "ReplicaUnavailableError",
    "RequestCancelledError",
    "gRPCStatusError",
]


class RayServeException(Exception):
    """Base of the errors of Serve."""


class BackPressureError(RayServeException):
    """`max_queued_requests` requests of this process wait already for replicas of the deployment. Retry later.

    Args:
        num_queued_requests: how many wait.
        max_queued_requests: the limit.
        status_code: of the HTTP response.
        retry_after_s: for its header `Retry-After`; None for no header.
    """

    def __init__(
        self,
        num_queued_requests: int,
        max_queued_requests: int,
        status_code: int = 503,
        retry_after_s: float | None = None,
    ) -> None:
        super().__init__(num_queued_requests, max_queued_requests, status_code, retry_after_s)
        self.num_queued_requests = num_queued_requests
        self.max_queued_requests = max_queued_requests
        self.status_code = status_code
        self.retry_after_s = retry_after_s

    @property
    def message(self) -> str:
        """What happened."""
        return (
            f"Request dropped: {self.num_queued_requests} requests wait already, and max_queued_requests is "
            f"{self.max_queued_requests}. Retry later, or raise max_queued_requests or the number of replicas."
        )

    def __str__(self) -> str:
        return self.message


class RequestCancelledError(RayServeException, TaskCancelledError):
    """The request was cancelled, by `cancel` of its response or because its caller went away."""

    def __init__(self, request_id: str | None = None) -> None:
        Exception.__init__(self, request_id)
        self.request_id = request_id

    def __str__(self) -> str:
        return f"Request {self.request_id} was cancelled." if self.request_id else "Request was cancelled."


class DeploymentUnavailableError(RayServeException):
    """The deployment can answer no requests: its replicas do not come up, or it was deleted.

    Args:
        deployment_id: the deployment.
        reason: why.
    """

    def __init__(self, deployment_id: Any, reason: str = "it failed to deploy") -> None:
        super().__init__(deployment_id, reason)
        self.deployment_id = deployment_id
        self.reason = reason

    @property
    def message(self) -> str:
        """What happened."""
        return f"{self.deployment_id} is unavailable because {self.reason}."

    def __str__(self) -> str:
        return self.message


class ReplicaUnavailableError(RayServeException):
    """The replica that the request was meant for is gone, or refuses it."""

    def __init__(self, replica_id: str) -> None:
        super().__init__(replica_id)
        self.replica_id = replica_id

    @property
    def message(self) -> str:
        """What happened."""
        return f"Replica {self.replica_id} is no longer available. Send the request again."

    def __str__(self) -> str:
        return self.message


class gRPCStatusError(RayServeException):
    """User code raised after it had set a gRPC status: the ingress answers with that one.

    Args:
        original_exception: what it raised.
        code, details: the status.
    """

    def __init__(
        self, original_exception: BaseException, code: Any = None, details: str | None = None
    ) -> None:
        super().__init__(original_exception, code, details)
        self.original_exception = original_exception
        self.grpc_code = code
        self.grpc_details = details

    def __str__(self) -> str:
        return str(self.original_exception)
