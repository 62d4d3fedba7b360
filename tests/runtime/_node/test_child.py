from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from runtime._node.child import end_session, has_ended, send_signal, wait_for_end
from tests.polling import eventually
from tests.processes import is_alive


@pytest.fixture
def child() -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    yield process
    process.kill()
    process.communicate()


def test_a_child_that_lives_on(child: subprocess.Popen[bytes]) -> None:
    assert not wait_for_end(child, 0.01)
    assert child.poll() is None


@pytest.mark.parametrize("has_pidfd", [True, False])
def test_the_end_of_a_child(
    child: subprocess.Popen[bytes], has_pidfd: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not has_pidfd:

        def refuse(_pid: int) -> int:
            raise OSError("no such system call")

        monkeypatch.setattr("os.pidfd_open", refuse)
        assert not wait_for_end(child, 0.01)
    child.kill()
    assert wait_for_end(child, 60)
    assert wait_for_end(child, 60)
    assert child.returncode == -9


def test_what_an_ended_child_left_in_its_session_goes_with_it() -> None:
    program = (
        "import subprocess, sys; print(subprocess.Popen(['sleep', '1000']).pid, flush=True); sys.exit(3)"
    )
    leader = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, start_new_session=True)
    assert leader.stdout is not None
    left = int(leader.stdout.readline())
    leader.stdout.close()
    assert has_ended(leader, 60)
    send_signal(leader, signal.SIGTERM)
    assert os.waitid(os.P_PID, leader.pid, os.WEXITED | os.WNOWAIT) is not None  # nobody has reaped it
    assert is_alive(left)
    assert end_session(leader) == end_session(leader) == 3
    assert eventually(lambda: not is_alive(left))
    send_signal(leader, signal.SIGTERM)
