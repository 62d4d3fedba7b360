"""Generators whose items are the returns of a task: a fixed number, or as many as there are."""

from __future__ import annotations

from typing import Any

import pytest

from tests.runtime.api.streams import Streams, count, drain
from tests.under_test import OWN, ray

pytestmark = pytest.mark.usefixtures("session")


def test_a_fixed_number_of_returns() -> None:
    assert ray.get(count.options(num_returns=3).remote(3)) == [0, 1, 2]
    assert ray.get(count.options(num_returns=1).remote(3)) == 0
    assert ray.get(count.options(num_returns=2).remote(3)) == [0, 1]
    assert count.options(num_returns=0).remote(3) is None
    assert ray.get(Streams.remote().plain.options(num_returns=2).remote(2)) == [0, 1]


def test_too_few_returns() -> None:
    refs = count.options(num_returns=4).remote(2)
    assert ray.get(refs[:2]) == [0, 1]
    for ref in refs[2:]:
        with pytest.raises(ValueError, match="returned 2 objects, but num_returns=4"):
            ray.get(ref)


def test_an_error_among_the_returns() -> None:
    refs = count.options(num_returns=3).remote(3, 1)
    assert ray.get(refs[0]) == 0
    for ref in refs[1:]:
        with pytest.raises(ValueError, match="boom"):
            ray.get(ref)


def test_dynamic() -> None:
    ref = count.options(num_returns="dynamic").remote(3)
    assert isinstance(ref, ray.ObjectRef)
    gen = ray.get(ref)
    assert isinstance(gen, ray.DynamicObjectRefGenerator)
    assert len(gen) == 3
    assert [ray.get(one) for one in gen] == [0, 1, 2]
    assert len(gen) == 0
    assert len(ray.get(count.options(num_returns="dynamic").remote(0))) == 0


def test_dynamic_results_travel() -> None:
    @ray.remote
    def total(gen: Any) -> int:
        return sum(ray.get(list(gen)))

    ref = Streams.remote().plain.options(num_returns="dynamic").remote(4)
    assert ray.get(total.remote(ref)) == 6
    assert ray.get(total.remote(ray.get(ref))) == 6


@pytest.mark.parametrize("fail_at", [0, 1])
def test_dynamic_with_an_error(fail_at: int) -> None:
    *good, bad = ray.get(count.options(num_returns="dynamic").remote(3, fail_at))
    assert ray.get(good) == list(range(fail_at))
    with pytest.raises(ValueError, match="boom"):
        ray.get(bad)


def test_dynamic_results_are_deprecated() -> None:
    actor = Streams.remote()
    for use in (
        lambda: ray.remote(num_returns="dynamic")(count._function),
        lambda: count.options(num_returns="dynamic"),
        lambda: actor.plain.options(num_returns="dynamic"),
    ):
        with pytest.warns(DeprecationWarning, match="num_returns='dynamic' is deprecated") as warned:
            use()
        if OWN:
            assert warned[0].filename == __file__


@pytest.mark.parametrize("value", ["streaming", "dynamic"])
def test_only_generators_stream(value: str) -> None:
    def plain() -> int:
        return 1

    with pytest.raises(ValueError, match="can only be used with generator functions"):
        ray.remote(num_returns=value)(plain)
    with pytest.raises(ValueError, match="can only be used with generator functions"):
        ray.remote(plain).options(num_returns=value).remote()
    with pytest.raises(ValueError, match="can only be used with generator functions"):
        Streams.remote().not_a_generator.options(num_returns=value).remote()


def test_several_objects_per_yield() -> None:
    @ray.remote(_num_objects_per_yield=2)
    def pairs(last: Any) -> Any:
        yield 1, 2
        yield [3, 4]
        yield last

    assert drain(pairs.remote((5, 6))) == [1, 2, 3, 4, 5, 6]
    for wrong in (5, (1, 2, 3)):
        *good, error = drain(pairs.remote(wrong))
        assert good == [1, 2, 3, 4]
        assert ValueError in error
    with pytest.raises(ValueError, match="cannot be overridden"):
        pairs.options(_num_objects_per_yield=3).remote(1)
    with pytest.raises(ValueError, match="cannot be overridden"):
        Streams.remote().plain.options(_num_objects_per_yield=2)
