"""How processes of workers end, and those that user code forked."""

from __future__ import annotations

import io
import os
import sys

import pytest

from runtime._executor.process_end import end_fork, exit_status, flush_output


@pytest.mark.parametrize(("code", "status"), [(None, 0), (0, 0), (3, 3), ("a message", 1), (True, True)])
def test_the_status_is_pythons_own(code: object, status: int) -> None:
    assert exit_status(SystemExit(code)) == status


def test_streams_that_user_code_closed_stop_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    closed, kept = io.StringIO(), io.TextIOWrapper(io.BytesIO())
    closed.close()
    kept.write("text")
    monkeypatch.setattr(sys, "stdout", closed)
    monkeypatch.setattr(sys, "stderr", kept)
    flush_output()
    assert kept.buffer.getvalue() == b"text"  # type: ignore[attr-defined]


@pytest.mark.parametrize(("raised", "status"), [(None, 0), (ValueError("no"), 1), (SystemExit(3), 3)])
def test_a_fork_of_user_code_ends_as_it_would_without_us(raised: BaseException | None, status: int) -> None:
    pid = os.fork()
    if not pid:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        sys.stderr = sys.__stderr__
        try:
            if raised is not None:
                raise raised
        finally:
            end_fork()
    _, ended = os.waitpid(pid, 0)
    assert os.waitstatus_to_exitcode(ended) == status
