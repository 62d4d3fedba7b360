"""A head that crashes comes back by itself, with its jobs; one that is told to end does not."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.clusterctl.cli import Cli, alive
from tests.clusterctl.real.test_ssh import SPEC, what_is_left
from tests.polling import eventually
from tests.testbed.sshd import BARE, USER, SshTestbed, missing

pytestmark = pytest.mark.skipif(bool(missing()), reason=missing() or "there can be hosts here")

PID = "tr -d '\\n' < $CLUSTERCTL_SESSION_DIR/daemon.json | sed 's/.*\"pid\": *\\([0-9]*\\).*/\\1/'"
KEEPER = "pgrep -f '[c]lusterctl.head.keeper '"
SLEEPS = "import os, time\nprint('pid', os.getpid(), flush=True)\ntime.sleep(600)\n"


def test_a_head_that_crashes_comes_back_with_its_jobs(tmp_path: Path) -> None:
    with SshTestbed(2, tmp_path, hidden=BARE) as bed, bed.inside():
        head, worker = bed.hosts
        cli = Cli(tmp_path)
        spec = tmp_path / "own.yaml"
        spec.write_text(SPEC.format(head=head.address, workers=worker.address, user=USER, key=bed.key_file))
        try:
            ran = cli.run("up", "-y", str(spec), timeout_s=170)
            assert ran.status == 0, ran.err
            ran = cli.run("submit", "--submission-id", "done", cli.script("print('said before')\n"))
            assert ran.status == 0, ran.err
            assert cli.run("submit", "--submission-id", "runs", "--no-wait", cli.script(SLEEPS)).status == 0
            assert eventually(lambda: "pid" in cli.run("job", "logs", "runs").out)
            assert cli.run("autostop", "--idle-minutes", "50", "--down").status == 0
            before = cli.run("exec", PID).out.strip()
            assert cli.run("exec", f"kill -KILL -{before}").status == 0, "the head leads a process group"

            def came_back() -> bool:
                ran = cli.run("job", "list", "--json")
                return ran.status == 0 and cli.run("exec", PID).out.strip() != before

            assert eventually(came_back, 60.0)
            jobs = {job["submission_id"]: job for job in cli.run("job", "list", "--json").json()}
            assert jobs["done"]["status"] == "SUCCEEDED"
            assert (jobs["runs"]["status"], "restarted" in jobs["runs"]["message"]) == ("FAILED", True)
            assert "said before" in cli.run("job", "logs", "done").out
            assert cli.run("exec", "pgrep -f '[t]ime.sleep|[j]ob.py'").out == "", "its processes have ended"
            assert cli.run("autostop", "--json").json()["idle_minutes"] == 50
            assert cli.wait(lambda status: len(alive(status)) == 2, 120.0), "the worker is there again"

            # Its keeper is looked after, too.
            assert eventually(lambda: cli.run("exec", KEEPER).out)
            keeper = cli.run("exec", KEEPER).out
            assert cli.run("exec", f"kill -KILL {keeper}").status == 0
            assert eventually(lambda: cli.run("exec", KEEPER).out not in ("", keeper), 60.0)
            before = cli.run("exec", PID).out.strip()
            assert cli.run("exec", f"kill -KILL {before}").status == 0
            assert eventually(came_back, 60.0)
            assert cli.run("exec", KEEPER).out.count("\n") == 1

            # Told to end, it stays away.
            stop = '"$CLUSTERCTL_PYTHON" -m clusterctl start --stop'
            assert cli.run("exec", stop).status == 0
            assert cli.run("exec", "pgrep -f '[c]lusterctl.head'").out == ""
        finally:
            ran = cli.run("down", "-y", str(spec), timeout_s=120)
        assert ran.status == 0, ran.err
        for host in bed.hosts:
            assert what_is_left(host) == ""
