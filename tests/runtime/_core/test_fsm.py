from __future__ import annotations

import enum
import pickle

import pytest

from runtime._core import fsm
from runtime._core.fsm import Edge, InvalidTransition, Machine


class Light(enum.Enum):
    RED = "red"
    GREEN = "green"
    OFF = "off"


class Event(enum.Enum):
    GO = "go"
    HALT = "halt"
    CUT = "cut"


TABLE = {
    (Light.RED, Event.GO): Edge(Light.GREEN, "the way is free"),
    (Light.GREEN, Event.HALT): Edge(Light.RED, "someone comes"),
    (Light.RED, Event.CUT): Edge(Light.OFF, "power: gone"),
    (Light.GREEN, Event.CUT): Edge(Light.OFF, "power: gone"),
}


def machine() -> Machine[Light, Event]:
    return Machine("light 7", Light.RED, TABLE)


def test_follows_its_table() -> None:
    light = machine()
    assert light.step(Event.GO, 1.0) is Light.GREEN
    assert light.state is Light.GREEN
    assert light.can(Event.HALT)
    assert not light.can(Event.GO)


def test_an_unlisted_event_raises_and_changes_nothing() -> None:
    light = machine()
    light.step(Event.GO, 1.0)
    with pytest.raises(InvalidTransition) as caught:
        light.step(Event.GO, 2.0)
    assert light.state is Light.GREEN
    text = str(caught.value)
    assert "light 7 is GREEN and cannot take GO" in text
    assert "1.000 RED -GO-> GREEN" in text


def test_history_is_bounded_and_in_order() -> None:
    light = machine()
    for turn in range(20):
        light.step(Event.GO if turn % 2 == 0 else Event.HALT, float(turn))
    assert len(light.history) == fsm.HISTORY
    assert light.history[-1].startswith("19.000")
    assert light.history[0].startswith("12.000")


def test_the_error_survives_pickling() -> None:
    error = InvalidTransition("light 7", Light.RED, Event.HALT, ("before",))
    again = pickle.loads(pickle.dumps(error))
    assert str(again) == str(error)
    assert again.state is Light.RED


def test_a_state_may_be_its_own_event() -> None:
    table = {(Light.RED, Light.GREEN): Edge(Light.GREEN, "wanted")}
    light: Machine[Light, Light] = Machine("x", Light.RED, table)
    assert light.step(Light.GREEN) is Light.GREEN


def test_terminal_and_reachable_states() -> None:
    assert fsm.terminal_states(Light, TABLE) == {Light.OFF}
    assert fsm.reachable_states(Light.RED, TABLE) == set(Light)
    assert fsm.reachable_states(Light.OFF, TABLE) == {Light.OFF}


def test_mermaid_shows_every_edge_once_with_its_reason() -> None:
    text = fsm.mermaid(Light.RED, Light, TABLE)
    assert text.splitlines() == [
        "stateDiagram-v2",
        "    [*] --> RED",
        "    RED --> GREEN: the way is free",
        "    GREEN --> RED: someone comes",
        "    RED --> OFF: power, gone",
        "    GREEN --> OFF: power, gone",
        "    OFF --> [*]",
    ]
