"""Ports that are bound later."""

from __future__ import annotations

import random
import socket

import pytest

from runtime.train._run.addresses import Port, outside


def test_ports_are_outside_the_range_of_the_system() -> None:
    found = outside((32_768, 60_999))
    assert 32_767 in found
    assert 61_000 in found
    assert not {32_768, 50_000, 60_999} & {*found}
    assert outside((1_024, 65_535)) == range(1_024, 65_536)


def test_a_port_that_is_reserved_or_in_use_is_not_chosen_again(monkeypatch: pytest.MonkeyPatch) -> None:
    first, free = Port(), Port()
    free.release()
    with socket.socket() as listener:
        listener.bind(("", 0))
        busy = listener.getsockname()[1]
        chosen = iter([first.number, busy, free.number])
        monkeypatch.setattr(random, "choice", lambda candidates: next(chosen))
        second = Port()
    assert second.number == free.number
    for port in (first, second):
        with socket.socket() as server:
            server.bind(("", port.number))  # the framework can bind it
        port.release()


def test_a_released_port_can_be_chosen_again() -> None:
    first = Port()
    name = f"\0train-port-{first.number}"
    first.release()
    with socket.socket(socket.AF_UNIX) as other:
        other.bind(name)
