"""Where a driver's environment comes from."""

from __future__ import annotations

import pytest

from runtime._api.job_environment import command_of_uv_run


@pytest.mark.parametrize(
    ("parent", "driver", "command"),
    [
        (["uv", "run", "job.py", "-x"], ["python", "job.py", "-x"], ["uv", "run"]),
        (
            ["/bin/uv", "run", "--with", "emoji", "python", "-u", "job.py"],
            ["/v/bin/python", "-u", "job.py"],
            ["/bin/uv", "run", "--with", "emoji"],
        ),
        (["uv", "run", "--", "python3.11", "job.py"], ["python3.11", "job.py"], ["uv", "run"]),
        (["uv", "run", "--isolated", "-m", "job"], ["python", "-m", "job"], ["uv", "run", "--isolated"]),
        (["uv", "run", "other.py"], ["python", "job.py"], []),
        (["uv", "pip", "job.py"], ["python", "job.py"], []),
        (["bash", "job.sh"], ["python", "job.py"], []),
        (["uv"], ["python"], []),
    ],
)
def test_what_uv_run_was_told(parent: list[str], driver: list[str], command: list[str]) -> None:
    assert command_of_uv_run(parent, driver) == command
