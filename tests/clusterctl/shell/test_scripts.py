"""Pieces of shell scripts, run by a shell."""

from __future__ import annotations

import os
import secrets
import signal
import subprocess

from clusterctl.shell.scripts import kill_marked


def test_all_that_have_the_mark_are_killed_and_no_others() -> None:
    mark = secrets.token_hex(8)
    environment = {**os.environ, "SOME_MARK": mark}
    script = "sleep 600 & echo begun; wait"
    with (
        subprocess.Popen(["sh", "-c", script], stdout=subprocess.PIPE, env=environment) as marked,
        subprocess.Popen(["sleep", "600"], env={**os.environ, "SOME_MARK": "another"}) as other,
    ):
        assert marked.stdout is not None
        marked.stdout.readline()
        assert subprocess.run(["sh", "-c", kill_marked("SOME_MARK", mark)], check=False).returncode == 0
        assert marked.stdout.read() == b""  # nobody holds it any more
        assert marked.wait() == -signal.SIGKILL
        assert other.poll() is None
        other.kill()
