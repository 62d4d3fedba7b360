"""Text that UTF-8 cannot carry: refused where it names something, escaped where it only describes, harmful nowhere."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import pytest

from tests.polling import eventually
from tests.under_test import NAME, OWN, ray

pytestmark = [
    pytest.mark.usefixtures("session"),
    pytest.mark.skipif(not OWN, reason="Ray's own encoding is strict elsewhere"),
]
ODD = "odd \udc80"


@ray.remote
def pid() -> int:
    return os.getpid()


@pytest.mark.parametrize("options", [{"name": ODD}, {"resources": {ODD: 1}}], ids=["name", "resource"])
def test_an_option_with_a_lone_surrogate_is_refused_at_the_call(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="lone surrogate"):
        pid.options(**options)
    assert ray.get(pid.remote())


def test_an_actor_cannot_have_such_a_name() -> None:
    @ray.remote
    class Actor:
        pass

    for options in ({"name": ODD}, {"name": "x", "namespace": ODD}):
        with pytest.raises(ValueError, match="lone surrogate"):
            Actor.options(**options).remote()
    with pytest.raises(ValueError, match="odd"):
        ray.get_actor(ODD)
    assert ray.get(pid.remote())


def test_an_error_with_such_a_text_is_raised_and_listed() -> None:
    @ray.remote
    def fail() -> None:
        raise ValueError(ODD)

    with pytest.raises(ValueError, match="odd \udc80"):
        ray.get(fail.remote())
    state: Any = __import__(f"{NAME}.util.state", fromlist=["list_tasks"])
    failed = [task for task in state.list_tasks(detail=True) if task.state == "FAILED"]
    assert any("odd \\udc80" in task.error_message for task in failed)
    assert ray.get(pid.remote())


def test_a_tag_of_a_metric_does_not_cost_the_worker_its_connection() -> None:
    @ray.remote
    class Counting:
        def count(self) -> int:
            from runtime.util.metrics import Counter

            Counter("odd_texts", tag_keys=("tag",)).inc(tags={"tag": ODD})
            return os.getpid()

        def told(self) -> bool:
            from runtime._process.metrics import metrics

            return not metrics.changed

    actor = Counting.remote()
    before = ray.get(actor.count.remote())
    assert eventually(lambda: ray.get(actor.told.remote()))
    assert ray.get(actor.count.remote()) == before


def test_a_program_with_an_argument_that_is_not_utf_8() -> None:
    program = f"import {NAME} as ray; ray.init(num_cpus=1); print(ray.get(ray.put(7)))"
    done = subprocess.run(
        [sys.executable, "-c", program, b"\xff\xfe"], capture_output=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == b"7\n"


def test_a_tasks_function_may_be_called_anything() -> None:
    def function() -> int:
        return 3

    function.__qualname__ = function.__name__ = ODD
    assert ray.get(ray.remote(function).remote()) == 3
