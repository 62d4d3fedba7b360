"""Prices that a cloud was asked for, and their file. How clouds are asked is in their own tests."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from pathlib import Path

import pytest

from autoscaler.provider import Auth
from clusterctl.providers import prices
from clusterctl.providers.prices import Prices
from tests.polling import eventually


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """The machine may be busy."""
    monkeypatch.setattr(prices, "_PATIENCE_S", 60.0)


def test_a_topic_is_asked_for_once_and_kept(tmp_path: Path) -> None:
    asked: list[str] = []

    def ask(topic: str) -> Mapping[str, float]:
        asked.append(topic)
        return {"a": 1.0}

    file = tmp_path / "cache" / "prices.json"
    one = Prices(file, ask)
    assert one.source("the list", "a table") == "a table"
    assert one.of("x") == one.of("x") == {"a": 1.0}
    assert one.source("the list", "a table").startswith("the list of 20")
    other = Prices(file, ask)
    assert other.of("x") == {"a": 1.0}
    assert other.of("y") == {"a": 1.0}
    assert Prices(file, ask).of("x") == {"a": 1.0}
    assert asked == ["x", "y"]


def test_a_damaged_file_and_one_that_cannot_be_written_harm_nobody(tmp_path: Path) -> None:
    file = tmp_path / "prices.json"
    file.write_text('{"x": 1}')
    assert Prices(file, lambda topic: {"a": 2.0}).of("x") == {"a": 2.0}
    assert Prices(tmp_path / "prices.json" / "below", lambda topic: {"a": 3.0}).of("x") == {"a": 3.0}


def test_who_refuses_is_left_alone_and_the_table_is_named(tmp_path: Path) -> None:
    asked: list[str] = []

    def refuse(topic: str) -> Mapping[str, float]:
        asked.append(topic)
        raise Auth("no")

    one = Prices(tmp_path / "prices.json", refuse)
    assert one.of("x") == one.of("y") == {}
    assert asked == ["x"]
    assert one.source("the list", "a table") == "a table"


def test_a_process_waits_once_for_an_answer_that_comes_late(tmp_path: Path) -> None:
    may_answer = threading.Event()

    def late(topic: str) -> Mapping[str, float]:
        may_answer.wait()
        return {"a": 1.0}

    one = Prices(tmp_path / "prices.json", late)
    one._patience_s = 0.01
    assert one.of("x") == {}
    may_answer.set()
    assert eventually(lambda: one.of("x") == {"a": 1.0})


def test_the_age_of_prices() -> None:
    assert prices.age(3600.0) == ""
    assert prices.age(90000.0) == " (1 day old)"
    assert prices.age(6.5 * 86400) == " (6 days old)"
