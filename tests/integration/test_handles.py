"""What goes with the last reference, without the help of a garbage collection."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import runtime as ray
from runtime._process import core_worker
from tests.polling import eventually
from tests.processes import is_alive


@pytest.fixture(scope="module", autouse=True)
def session(no_leaks: None) -> Iterator[None]:
    ray.init(num_cpus=2, log_to_driver=False)
    yield
    ray.shutdown()


@pytest.fixture
def no_collection() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def everything_is_free() -> bool:
    core = core_worker.current()
    core.drain()
    return not core.objects.table.entries


@pytest.mark.usefixtures("no_collection")
def test_actors_and_objects_go_with_their_last_reference() -> None:
    @ray.remote(num_cpus=0)
    class Actor:
        def pid(self, *_: Any) -> int:
            return os.getpid()

        def stream(self) -> Iterator[Any]:
            yield 1
            yield np.ones(2**18)

    def use() -> int:
        actor = Actor.remote()
        ref = ray.put(np.ones(2**18))
        ray.get(actor.pid.options(name="named").remote(ref, [ref]), timeout=60)
        for item in actor.stream.options(num_returns="streaming").remote():
            ray.get(item, timeout=60)
        return int(ray.get(actor.pid.remote(actor), timeout=60))

    pid = use()
    assert eventually(lambda: not is_alive(pid))
    assert eventually(everything_is_free)


def test_actors_that_call_each_other_are_let_go() -> None:
    @ray.remote(num_cpus=0)
    class Actor:
        async def down(self, other: Any, depth: int) -> int:
            return os.getpid() if not depth else await other.down.remote(other, depth - 1)

    first, second = Actor.remote(), Actor.remote()
    pids = ray.get([first.down.remote(second, 5), second.down.remote(first, 5)], timeout=60)
    del first, second
    assert eventually(lambda: not any(map(is_alive, pids)))
    assert eventually(everything_is_free)


LEAVES = """
    import runtime as ray

    @ray.remote(num_cpus=0)
    class Actor:
        def fail(self, me):
            raise ValueError(me)

    ray.init("auto", log_to_driver=False)
    actor = Actor.remote()
    try:
        ray.get(actor.fail.remote(actor))
    except ValueError as error:
        print(type(error.cause.args[0].fail).__name__)
    ray.shutdown()
    print(ray.is_initialized())
"""


def test_an_error_that_holds_a_handle_starts_no_new_session_when_the_program_leaves() -> None:
    """The last tasks are reported then, and their errors are rebuilt for that."""
    address = ray.get_runtime_context().gcs_address
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(LEAVES)],
        env={**os.environ, "RAY_ADDRESS": address},
        capture_output=True,
        text=True,
        timeout=150,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "ActorMethod\nFalse\n"
