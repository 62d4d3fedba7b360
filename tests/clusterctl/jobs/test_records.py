"""Jobs' records: what the end of a driver means."""

from __future__ import annotations

import pytest

from clusterctl.jobs.records import JobStatus, outcome


@pytest.mark.parametrize(
    ("returncode", "stopped", "status", "code"),
    [
        (0, False, JobStatus.SUCCEEDED, 0),
        (1, False, JobStatus.FAILED, 1),
        (3, False, JobStatus.FAILED, 3),
        (-9, False, JobStatus.FAILED, 137),
        (-15, True, JobStatus.STOPPED, 143),
        (0, True, JobStatus.STOPPED, 0),
    ],
)
def test_outcomes(returncode: int, stopped: bool, status: JobStatus, code: int) -> None:
    assert outcome(returncode, stopped)[:2] == (status, code)


def test_final_states() -> None:
    assert {status.name for status in JobStatus if status.is_final} == {"SUCCEEDED", "FAILED", "STOPPED"}
