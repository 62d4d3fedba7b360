"""What readers of a channel are told, and when."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from runtime._extension.channels.errors import ChannelFailedError, dump_failure
from runtime._extension.channels.memory import Geometry
from runtime._extension.channels.shared import SharedChannel


class Told:
    """A link that notes what it is told."""

    def __init__(self) -> None:
        self.told: list[object] = []

    def closed(self, final: int) -> None:
        self.told.append(final)

    def failed(self, failure: bytes) -> None:
        self.told.append("failed")


@pytest.fixture
def channel() -> Iterator[SharedChannel]:
    made = SharedChannel(b"c" * 16, "channel", ("one", "other"), Geometry(2, 64, 2))
    yield made
    made.close_descriptors()


def test_a_reader_is_told_of_the_end_after_its_greeting_and_once(channel: SharedChannel) -> None:
    """A writer may close in another thread while the answer to a reader is on its way: that comes first."""
    early, late = Told(), Told()
    assert channel.attach(0, early) == ""
    channel.greeted(0)
    assert channel.attach(1, late) == ""
    channel.close(3)
    assert (early.told, late.told) == ([3], [])
    channel.greeted(1)
    assert (early.told, late.told) == ([3], [3])


def test_a_reader_is_told_of_a_failure_after_its_greeting_and_once(channel: SharedChannel) -> None:
    early, late = Told(), Told()
    channel.attach(0, early)
    channel.greeted(0)
    channel.attach(1, late)
    channel.fail(dump_failure(ChannelFailedError("one", ValueError("no"))))
    assert (early.told, late.told) == (["failed"], [])
    channel.greeted(1)
    assert (early.told, late.told) == (["failed"], ["failed"])
