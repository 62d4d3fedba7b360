"""What `wait` remembers between two calls."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import runtime as ray
from runtime._process.core_worker import current
from tests.polling import eventually


@pytest.fixture(scope="module", autouse=True)
def session(no_leaks: None) -> Iterator[None]:
    ray.init(num_cpus=1)
    yield
    ray.shutdown()


def test_the_rest_is_checked_once_and_not_kept() -> None:
    core = current()
    refs = [ray.put(i) for i in range(20)]
    _, rest = ray.wait(refs)
    known = core.waiter.known(rest)
    assert known is None or (known == rest and known is not rest)  # None: a tick came in between
    core.waiter.remember(rest, known, [])
    entries = {ref.binary() for ref in refs}
    del refs, rest, known, _
    assert eventually(lambda: not entries & set(core.objects.table.entries))


def test_another_list_is_not_known() -> None:
    core = current()
    refs = [ray.put(i) for i in range(3)]
    for other in ([*refs, refs[0]], refs[:2], refs[::-1], [*refs[:2], None], tuple(refs), None, []):
        core.waiter.remember(refs, None, [])
        assert core.waiter.known(other) is None
    core.waiter.remember(refs, None, [])
    refs.append(refs[0])
    assert core.waiter.known(refs) is None
