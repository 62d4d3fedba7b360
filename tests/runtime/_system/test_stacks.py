"""Asking processes for their stacks: those that answer, those that cannot, and those that must not be asked."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from runtime._system import stacks as _stacks
from tests.leaks import tagged_processes
from tests.polling import eventually
from tests.stalls import suspend

RECEIVES = """
import os, signal, sys, threading
from runtime._system import stacks as _stacks
def busy_for_ever():
    print("up", flush=True)
    while True:
        pass
"""


@contextmanager
def program(text: str) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen([sys.executable, "-c", RECEIVES + text], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "up\n"
        yield process
    finally:
        process.kill()
        process.communicate()


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """For those that will answer: an answer may take long."""
    monkeypatch.setattr(_stacks, "_ANSWER_S", 60.0)


@pytest.mark.usefixtures("patient")
def test_a_busy_process_answers_every_time() -> None:
    with program("_stacks.register('worker')\nbusy_for_ever()") as process:
        for _ in range(3):
            (stacks,) = _stacks.collect({process.pid})
            assert (stacks.pid, stacks.role) == (process.pid, "worker")
            assert stacks.text.count("in busy_for_ever") == 1
        assert process.poll() is None


@pytest.mark.usefixtures("patient")
def test_every_thread_is_shown() -> None:
    text = (
        "_stacks.register('worker')\nthreading.Thread(target=busy_for_ever).start()\nthreading.Event().wait()"
    )
    with program(text) as process:

        def shown() -> bool:
            (stacks,) = _stacks.collect({process.pid})
            return "in busy_for_ever" in stacks.text and "in wait" in stacks.text

        assert eventually(shown), "its main thread may be on its way there"


def test_a_stopped_process_has_no_text() -> None:
    with program("_stacks.register('worker')\nbusy_for_ever()") as process:
        suspend(process.pid)
        (stacks,) = _stacks.collect({process.pid})
        assert stacks.text == ""


def test_a_process_that_did_not_register_is_not_asked() -> None:
    with program("busy_for_ever()") as process:
        assert _stacks.collect({process.pid}) == []
        assert process.poll() is None


def test_a_program_that_uses_the_signal_keeps_it() -> None:
    text = "signal.signal(signal.SIGUSR2, lambda *_: None)\n_stacks.register('driver')\nbusy_for_ever()"
    with program(text) as process:
        assert _stacks.collect({process.pid}) == []


def test_a_fork_is_asked_when_it_registered_itself() -> None:
    text = """
_stacks.register('zygote')
if os.fork() == 0:
    os.environ["IS_FORK"] = "1"
    {}
    threading.Event().wait()
busy_for_ever()
"""
    run_id = os.environ["CLUSTERCTL_TEST_RUN"]
    for act, roles in (("", ["zygote"]), ("_stacks.register('worker')", ["worker", "zygote"])):
        before = set(tagged_processes(run_id))
        with program(text.format(act)):
            ours = set(tagged_processes(run_id)) - before
            assert len(ours) == 2
            assert eventually(
                lambda ours=ours, roles=roles: sorted(s.role for s in _stacks.collect(ours)) == roles
            )
            for pid in ours:
                os.kill(pid, signal.SIGKILL)


def test_registering_can_be_taken_back() -> None:
    descriptors = len(os.listdir("/proc/self/fd"))
    _stacks.register("driver")
    _stacks.register("driver")
    assert "test_registering_can_be_taken_back" in _stacks.collect({os.getpid()})[0].text
    _stacks.unregister()
    _stacks.unregister()
    assert _stacks.collect({os.getpid()}) == []
    assert len(os.listdir("/proc/self/fd")) == descriptors
