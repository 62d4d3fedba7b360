from __future__ import annotations

import os
import signal
import subprocess
import sys

from runtime._system.sessions import kill_session
from tests.polling import eventually
from tests.processes import is_alive

FAMILY = """
import subprocess, time
options = {}, {"process_group": 0}, {"start_new_session": True}
print(*(subprocess.Popen(["sleep", "1000"], **option).pid for option in options), flush=True)
time.sleep(1000)
"""


def test_what_made_a_session_of_its_own_is_left() -> None:
    leader = subprocess.Popen(
        [sys.executable, "-c", FAMILY], stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    assert leader.stdout is not None
    with leader.stdout:
        child, group, session = map(int, leader.stdout.readline().split())
    try:
        kill_session(leader.pid, spared=child)
        assert leader.wait(60) == -signal.SIGKILL
        assert eventually(lambda: not is_alive(group))
        assert is_alive(child)
        assert is_alive(session)
    finally:
        for pid in (child, session):
            os.kill(pid, signal.SIGKILL)
