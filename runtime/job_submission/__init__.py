"""Submits programs to a cluster and follows them, through the job API of its head.

A cluster has a head when `clusterctl up`, `clusterctl start --head` or `init(include_dashboard=True)` made it.
"""

from .client import JobSubmissionClient
from .records import DriverInfo, JobDetails, JobErrorType, JobInfo, JobStatus, JobType

__all__ = [
    "DriverInfo",
    "JobDetails",
    "JobErrorType",
    "JobInfo",
    "JobStatus",
    "JobSubmissionClient",
    "JobType",
]
