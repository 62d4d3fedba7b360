"""Answers of AWS that are lost at any moment."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest

from autoscaler.provider import (
    Transient,
)
from clusterctl.providers.aws import provider as module
from tests.clusterctl.providers.aws.cluster import Make
from tests.testbed.aws import Aws, Fault


@pytest.mark.parametrize("after", [False, True], ids=["before it happens", "when it has happened"])
def test_an_interruption_at_any_call_is_made_good(
    aws: Aws, cluster: Make, monkeypatch: pytest.MonkeyPatch, after: bool
) -> None:
    """The launcher loses AWS at every single call that changes something; doing it all again converges."""
    monkeypatch.setattr(module, "_PATIENCE_S", 0.0)
    for stage in ("up", "clean up"):
        for number in range(1000):
            one = cluster()
            if stage == "clean up":
                one.provider.prepare(one.kinds)
            calls = itertools.count()

            def is_the_one(asked: dict[str, str], calls: Iterator[int] = calls, number: int = number) -> bool:
                changes = not asked.get("Action", "Get").startswith(("Describe", "Get"))
                return changes and next(calls) == number

            broken = Fault("", "InternalError", status=500, times=1, after=after, when=is_the_one)
            aws.world.faults = [broken]
            try:
                if stage == "up":
                    one.provider.prepare(one.kinds)
                    one.create("h", kind=one.head)
                else:
                    one.provider.cleanup()
            except Transient:
                pass
            aws.world.faults = []
            if stage == "up":
                one.provider.prepare(one.kinds)
                assert len(one.create("h", kind=one.head).machines) == 1
                assert len(aws.instances()) == 1
                one.provider.terminate([machine.id for machine in one.provider.list()])
            one.provider.cleanup()
            assert aws.leftovers() == []
            aws.forget_tokens()
            if broken.times:  # there are no more calls
                break
        assert number > 5
