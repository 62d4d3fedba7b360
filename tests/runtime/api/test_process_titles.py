"""What `ps` shows of workers."""

from __future__ import annotations

import os
import pathlib
from typing import Any

import pytest

from tests.polling import eventually
from tests.under_test import ray

pytestmark = pytest.mark.usefixtures("session")


def title(pid: int) -> str:
    return pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().rstrip(b"\0").decode()


def name(pid: int) -> str:
    return pathlib.Path(f"/proc/{pid}/comm").read_text().strip()


def of_this_process() -> tuple[int, str, str]:
    return os.getpid(), title(os.getpid()), name(os.getpid())


@ray.remote
def task() -> tuple[int, str, str]:
    return of_this_process()


class Titled:
    def __init__(self) -> None:
        self.first = title(os.getpid())

    def method(self) -> tuple[int, str, str]:
        return of_this_process()

    def while_constructed(self) -> str:
        return self.first


class AsyncTitled:
    async def method(self) -> tuple[int, str, str]:
        return of_this_process()


def test_a_task_and_a_worker_without_one() -> None:
    pid, *shown = ray.get(task.remote())
    assert shown == ["ray::task", "ray::task"]
    assert eventually(lambda: (title(pid), name(pid)) == ("ray::IDLE", "ray::IDLE"))
    assert ray.get(task.options(name="its own").remote())[1:] == ("ray::its own", "ray::its own")


def test_methods_of_an_actor() -> None:
    actor = ray.remote(Titled).options(num_cpus=0).remote()
    assert ray.get(actor.while_constructed.remote()) == "ray::Titled.__init__"
    pid, *shown = ray.get(actor.method.remote())
    assert shown[0] == "ray::Titled.method"
    assert ray.get(actor.method.options(name="its own").remote())[1] == "ray::its own"
    assert eventually(lambda: title(pid) == "ray::Titled")


@pytest.mark.parametrize(
    ("cls", "options"), [(AsyncTitled, {}), (Titled, {"max_concurrency": 2})], ids=["async", "threaded"]
)
def test_actors_that_run_calls_at_the_same_time(cls: type, options: dict[str, Any]) -> None:
    actor = ray.remote(cls).options(num_cpus=0, **options).remote()
    pid, _, _ = ray.get(actor.method.remote())
    assert eventually(lambda: title(pid) == f"ray::{cls.__name__}")
