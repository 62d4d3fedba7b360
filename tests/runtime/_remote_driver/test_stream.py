"""Messages arrive exactly once and in order, whatever a cut loses."""

from __future__ import annotations

import random

import pytest

from runtime._remote_driver.messages import Barrier, Undefine
from runtime._remote_driver.stream import ACKNOWLEDGE_EVERY, Stream, StreamBroken


class Side:
    """One end, with what has arrived there, and what is on its way to the other."""

    def __init__(self) -> None:
        self.stream = Stream()
        self.arrived: list[int] = []
        self.way: list[bytes] = []
        self.is_ready = True

    def send(self, number: int) -> None:
        body = self.stream.send(Barrier(number))
        if self.is_ready:
            self.way.append(body)

    def take(self, body: bytes) -> None:
        message = self.stream.receive(body)
        if not self.is_ready:
            self.is_ready = True
            self.way += self.stream.again()
        if message is not None:
            self.arrived.append(message.request)

    def reconnect(self) -> None:
        self.is_ready = False
        self.way = [self.stream.acknowledgement()]


@pytest.mark.parametrize("seed", range(30))
def test_each_message_arrives_once_and_in_order(seed: int) -> None:
    chance = random.Random(seed)
    one, two = Side(), Side()
    sent = {id(one): 0, id(two): 0}
    for _ in range(400):
        side, other = chance.choice([(one, two), (two, one)])
        action = chance.random()
        if action < 0.45:
            sent[id(side)] += 1
            side.send(sent[id(side)])
        elif action < 0.95:
            for body in side.way[: chance.randrange(1, 5)]:
                side.way.pop(0)
                other.take(body)
        else:  # what was on its way is lost
            one.reconnect()
            two.reconnect()
    while one.way or two.way:
        for side, other in ((one, two), (two, one)):
            while side.way:
                other.take(side.way.pop(0))
    assert two.arrived == list(range(1, sent[id(one)] + 1))
    assert one.arrived == list(range(1, sent[id(two)] + 1))


def test_a_missing_message_breaks_the_stream() -> None:
    one, two = Stream(), Stream()
    one.send(Barrier(1))
    with pytest.raises(StreamBroken):
        two.receive(one.send(Barrier(2)))


def test_what_is_acknowledged_is_not_kept() -> None:
    one, two = Stream(), Stream()
    for number in range(ACKNOWLEDGE_EVERY):
        assert not two.is_acknowledgement_due
        two.receive(one.send(Undefine([number])))
    assert two.is_acknowledgement_due
    assert one.unacknowledged_bytes > 0
    assert one.receive(two.acknowledgement()) is None
    assert one.unacknowledged_bytes == 0
    assert one.again() == []
    assert not two.is_acknowledgement_due
