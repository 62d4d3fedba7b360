from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import pytest

from runtime._node.child import wait_for_end


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
