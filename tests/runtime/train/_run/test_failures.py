"""Why a run failed, in words."""

from __future__ import annotations

from runtime.exceptions import ActorDiedError, ActorUnavailableError, RayTaskError
from runtime.train._api.exceptions import ControllerError, WorkerGroupError
from runtime.train._core.attempt import Attempt
from runtime.train._core.plan import Failures
from runtime.train._core.ranks import placed
from runtime.train._run.failures import failure, summary


def raised(error: Exception) -> RayTaskError:
    return RayTaskError("Worker.run", 'Traceback:\n  File "loop.py", line 3, in train', error)


def attempt() -> Attempt:
    return Attempt(1, placed(["node", "node"]), ["a", "b"], [0, 0])


def test_a_process_that_ended_is_named_with_its_cause() -> None:
    failed = attempt()
    failed.failed(0, raised(RuntimeError("connection closed by peer")))
    failed.failed(1, ActorUnavailableError("its process is gone", None))
    assert not failed.is_explained
    failed.process_ended(
        "b", "its worker process has died. Worker unexpectedly exits: killed by signal 9 (SIGKILL)."
    )
    assert failed.is_explained
    text = str(failure(Failures("The training function has failed.", failed.errors)))
    assert text.splitlines()[:3] == [
        "The training function has failed.",
        "Rank 1: Its process was killed by signal 9 (SIGKILL).",
        "Rank 0: RuntimeError: connection closed by peer",
    ]
    assert isinstance(failed.errors[1], ActorDiedError)


def test_the_cause_may_be_known_before_the_call_has_failed() -> None:
    failed = attempt()
    failed.process_ended("b", "its node died.")
    failed.failed(1, ActorUnavailableError("its process is gone", None))
    assert failed.is_explained
    assert summary(failed.errors) == "Rank 1: Its process has ended: its node died."


def test_processes_that_were_ended_are_no_cause() -> None:
    failed = attempt()
    failed.failed(1, ActorUnavailableError("its process is gone", None))
    failed.is_ended = True
    failed.process_ended("b", "it was killed by its owner")
    assert not failed.is_explained


def test_an_error_of_the_function_keeps_its_remote_traceback() -> None:
    error = failure(Failures("The training function has failed.", {1: raised(ValueError("no"))}))
    assert isinstance(error, WorkerGroupError)
    assert isinstance(error.worker_failures[1], ValueError)
    assert "Rank 1: ValueError: no\nOn rank 1:\nTraceback" in str(error)
    assert 'File "loop.py", line 3, in train' in str(error)


def test_what_is_no_failure_of_workers_is_the_controllers() -> None:
    error = failure(OSError("disk full"))
    assert isinstance(error, ControllerError)
    assert "disk full" in str(error)
