"""Uploads in the background."""

from __future__ import annotations

import threading

import pytest

from runtime.train._run.upload import Uploads
from tests.polling import eventually


def test_are_done_one_after_another_in_order() -> None:
    uploads, done, at_once = Uploads(waiting=100), [], []
    lock = threading.Lock()

    def work(number: int) -> None:
        assert lock.acquire(blocking=False)
        at_once.append(1)
        done.append(number)
        lock.release()

    handles = [uploads.submit(lambda number=number: work(number)) for number in range(50)]  # type: ignore[misc]
    assert uploads.drain(60)
    assert done == list(range(50))
    for handle in handles:
        handle.wait(0)


def test_one_waits_and_the_next_has_its_caller_wait() -> None:
    uploads, end = Uploads(), threading.Event()
    first, second = uploads.submit(lambda: bool(end.wait(60)) and None), uploads.submit(lambda: None)
    submitted = threading.Event()
    third = threading.Thread(target=lambda: (uploads.submit(lambda: None), submitted.set()))
    third.start()
    assert not submitted.wait(0.1)
    assert (first.is_done, second.is_done) == (False, False)
    assert not uploads.drain(0)
    end.set()
    assert submitted.wait(60)
    assert uploads.drain(60)
    third.join(60)


def test_an_error_belongs_to_its_upload() -> None:
    uploads = Uploads()

    def fails() -> None:
        raise ValueError("no")

    first, second = uploads.submit(fails), uploads.submit(lambda: None)
    with pytest.raises(ValueError, match="no"):
        first.wait(60)
    second.wait(60)


def test_waiting_for_one_has_a_deadline() -> None:
    uploads, end = Uploads(), threading.Event()
    handle = uploads.submit(lambda: bool(end.wait(60)) and None)
    with pytest.raises(TimeoutError, match=r"within 0 s"):
        handle.wait(0)
    end.set()
    handle.wait(60)


def test_cancellation_frees_those_that_wait() -> None:
    uploads = Uploads()

    def work() -> None:
        eventually(lambda: uploads.is_cancelled)

    handles = [uploads.submit(work), uploads.submit(work)]
    threading.Timer(0.05, uploads.cancel).start()
    handles.append(uploads.submit(work))
    assert uploads.is_cancelled
    for handle in handles:
        handle.wait(60)
    assert uploads.drain(60)


def test_the_thread_ends_with_the_last_upload() -> None:
    uploads = Uploads()
    for _ in range(3):
        uploads.submit(lambda: None).wait(60)
    assert eventually(lambda: "uploads" not in [one.name for one in threading.enumerate()])
