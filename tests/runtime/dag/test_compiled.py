"""Compiled graphs: checked once, executed often, each result fetched once."""

from __future__ import annotations

import asyncio
import copy
import importlib
import pathlib
import pickle
import time
from typing import Any

import pytest

from tests.under_test import NAME, exceptions, ray

dag: Any = importlib.import_module(f"{NAME}.dag")
pytestmark = pytest.mark.usefixtures("session")


@ray.remote(num_cpus=0)
class Actor:
    def __init__(self) -> None:
        self.total = 0

    def add(self, value: int) -> int:
        self.total += value
        return self.total

    def plus(self, left: int, right: int) -> int:
        return left + right

    def fail(self, value: Any) -> None:
        raise ZeroDivisionError(value)

    def until_there(self, path: pathlib.Path) -> None:
        while not path.exists():
            time.sleep(0.01)


@ray.remote
def task(value: int) -> int:
    return value


def test_a_chain() -> None:
    one, two = Actor.remote(), Actor.remote()
    with dag.InputNode() as value:
        compiled = two.add.bind(one.add.bind(value)).experimental_compile()
    try:
        assert ray.get(compiled.execute(1)) == 1
        assert ray.get(compiled.execute(1)) == 3
        refs = [compiled.execute(1) for _ in range(3)]
        assert [ray.get(ref) for ref in refs] == [6, 10, 15]
    finally:
        compiled.teardown()


def test_a_result_is_fetched_once_and_stays_here() -> None:
    actor = Actor.remote()
    with dag.InputNode() as value:
        compiled = actor.add.bind(value).experimental_compile()
    try:
        ref = compiled.execute(1)
        for refused in (lambda: copy.copy(ref), lambda: copy.deepcopy(ref), lambda: pickle.dumps(ref)):
            with pytest.raises(ValueError, match="cannot be"):
                refused()
        assert ray.get(ref) == 1
        with pytest.raises(ValueError, match="can only be called once"):
            ray.get(ref)
    finally:
        compiled.teardown()


def test_several_inputs_and_outputs() -> None:
    actor = Actor.remote()
    with dag.InputNode() as value:
        compiled = dag.MultiOutputNode(
            [actor.plus.bind(value[0], value.y), actor.add.bind(value[0])]
        ).experimental_compile()
    try:
        refs = compiled.execute(1, y=2)
        assert ray.get(refs) == [3, 1]
        with pytest.raises(ValueError, match="1 positional args"):
            compiled.execute(y=2)
        with pytest.raises(ValueError, match="kwarg `y`"):
            compiled.execute(1)
    finally:
        compiled.teardown()


def test_errors_come_out_and_do_not_end_it() -> None:
    one, two = Actor.remote(), Actor.remote()
    with dag.InputNode() as value:
        compiled = two.add.bind(one.fail.bind(value)).experimental_compile()
    try:
        for _ in range(2):
            with pytest.raises(ZeroDivisionError):
                ray.get(compiled.execute(1))
    finally:
        compiled.teardown()


def test_a_result_that_is_late(tmp_path: pathlib.Path) -> None:
    actor = Actor.remote()
    with dag.InputNode() as value:
        compiled = actor.until_there.bind(value).experimental_compile()
    try:
        ref = compiled.execute(tmp_path / "go")
        with pytest.raises(exceptions.RayChannelTimeoutError):
            ray.get(ref, timeout=0.05)
    finally:
        (tmp_path / "go").touch()
        compiled.teardown()


def test_executions_in_flight_are_bounded() -> None:
    actor = Actor.remote()
    with dag.InputNode() as value:
        compiled = actor.add.bind(value).experimental_compile(_max_inflight_executions=2)
    try:
        refs = [compiled.execute(1), compiled.execute(1)]
        with pytest.raises(exceptions.RayCgraphCapacityExceeded, match="in-flight"):
            compiled.execute(1)
        assert ray.get(refs[0]) == 1
        assert ray.get(compiled.execute(1)) == 3
        assert ray.get(refs[1]) == 2
    finally:
        compiled.teardown()


def test_await() -> None:
    actor = Actor.remote()
    with dag.InputNode() as value:
        compiled = actor.add.bind(value).experimental_compile(enable_asyncio=True)

    async def main() -> list[Any]:
        futures = [await compiled.execute_async(1) for _ in range(3)]
        return [await future for future in futures]

    try:
        assert asyncio.run(main()) == [1, 2, 3]
        with pytest.raises(ValueError, match="execute_async"):
            compiled.execute(1)
    finally:
        compiled.teardown()


def test_what_cannot_be_compiled() -> None:
    actor = Actor.remote()
    with dag.InputNode() as value:
        with pytest.raises(NotImplementedError, match="actor method nodes"):
            task.bind(value).experimental_compile().execute(1)
        with pytest.raises(ValueError, match=r"Actor\.remote\(\)"):
            Actor.bind().add.bind(value).experimental_compile().execute(1)
        twice = actor.add.bind(value)
    with pytest.raises(NotImplementedError, match="exactly one InputNode"):
        actor.plus.bind(actor.add.bind(1), 1).experimental_compile().execute(1)
    with dag.InputNode() as value:
        value.y  # noqa: B018
        partly = actor.plus.bind(value[0], value.x)
    with pytest.raises(ValueError, match="attributes y, 0, x, but y is unused"):
        partly.experimental_compile().execute(1, x=2, y=3)
    compiled = twice.experimental_compile()
    with pytest.raises(ValueError, match="multiple times"):
        twice.experimental_compile()
    compiled.teardown()


def test_after_teardown() -> None:
    actor = Actor.remote()
    with dag.InputNode() as value:
        compiled = actor.add.bind(value).experimental_compile()
    assert ray.get(compiled.execute(1)) == 1
    compiled.teardown()
    compiled.teardown()
    with pytest.raises(exceptions.RayChannelError):
        ray.get(compiled.execute(1))
    assert ray.get(actor.add.remote(1)) == 2
