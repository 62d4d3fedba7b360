"""What a head keeps while its machine is stopped: the history of jobs, their output, and their packages."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tests.clusterctl.cli import Cli


@dataclass(frozen=True)
class Kept:
    """A job that has ended, and the working directory that it came from."""

    record: dict[str, Any]
    script: str


def what_a_stop_keeps(cli: Cli) -> Kept:
    """Runs a job from a working directory of its own."""
    script = cli.script("print('said before the stop')\n", folder="kept")
    ran = cli.run("submit", "--submission-id", "kept", script, timeout_s=120)
    assert ran.status == 0, ran.err
    return Kept(_kept(cli), script)


def assert_kept(cli: Cli, kept: Kept) -> None:
    """The job is in the history as it was, with its output; its package need not travel again."""
    assert _kept(cli) == kept.record
    assert "said before the stop" in cli.run("logs", "kept").out + cli.run("job", "logs", "kept").out
    ran = cli.run("submit", "--submission-id", "again", kept.script, timeout_s=120)
    assert ran.status == 0, ran.err
    assert "uploaded" not in ran.err + ran.out, "the package is still there"


def _kept(cli: Cli) -> dict[str, Any]:
    (record,) = (job for job in cli.run("job", "list", "--json").json() if job["submission_id"] == "kept")
    return dict(record)
