"""Remote functions inside other functions, after they were called here and with options."""

from __future__ import annotations

import pytest

from tests.under_test import ray

pytestmark = pytest.mark.usefixtures("session")


@ray.remote
def one() -> int:
    return 1


def test_a_function_that_was_called_here_travels() -> None:
    assert ray.get(one.remote()) == 1
    bound = one.options(num_cpus=0)
    assert ray.get(bound.remote()) == 1

    @ray.remote
    def call() -> int:
        return sum(ray.get([one.remote(), bound.remote(), one.options(name="other").remote()]))

    assert ray.get(call.remote(), timeout=60) == 3
