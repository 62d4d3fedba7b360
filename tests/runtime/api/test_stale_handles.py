"""Handles from before a shutdown."""

from __future__ import annotations

import pytest

from tests.under_test import exceptions, init, ray


@pytest.mark.usefixtures("fresh", "no_leaks")
def test_they_are_refused_in_the_next_session() -> None:
    @ray.remote
    class Plain:
        def get(self) -> int:
            return 1

    init(num_cpus=1)
    actor = Plain.remote()
    assert ray.get(actor.get.remote()) == 1
    ray.shutdown()
    init(num_cpus=1)
    with pytest.raises(Exception, match=r"session|cluster"):
        actor.get.remote()
    with pytest.raises(exceptions.ActorHandleNotFoundError, match="not valid across"):
        ray.kill(actor)
    assert ray.get(Plain.remote().get.remote()) == 1
