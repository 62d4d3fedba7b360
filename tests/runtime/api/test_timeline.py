"""`timeline`: when tasks and calls ran."""

from __future__ import annotations

import importlib
import json
import pathlib
import time
from typing import Any

import pytest

from tests.polling import eventually
from tests.under_test import NAME, OWN, ray

pytestmark = pytest.mark.usefixtures("session")
A_MOMENT_S = 0.05


@ray.remote
def takes_a_moment() -> None:
    time.sleep(A_MOMENT_S)


@ray.remote
class Sleeper:
    def sleep(self) -> None:
        time.sleep(A_MOMENT_S)


def events_of(name: str) -> list[dict[str, Any]]:
    return [event for event in ray.timeline() if event["cat"] == f"task::{name}"]


def test_tasks_and_calls() -> None:
    before = time.time() * 1e6
    sleeper = Sleeper.remote()
    ray.get(
        [takes_a_moment.remote(), takes_a_moment.options(name="my name").remote(), sleeper.sleep.remote()]
    )
    names = ("takes_a_moment", "my name", "Sleeper.sleep")
    assert eventually(lambda: all(events_of(name) for name in names))
    for name in names:
        (event,) = events_of(name)
        assert event["ph"] == "X"
        assert before <= event["ts"] <= time.time() * 1e6 - A_MOMENT_S * 1e6
        assert event["dur"] >= A_MOMENT_S * 0.9e6
        assert event["tid"].startswith("worker:")
        assert event["pid"]
        assert event["args"]["task_id"]
    assert "task:execute" in {event["cat"] for event in ray.timeline()}


def test_programs_measure_parts_of_themselves() -> None:
    profile = importlib.import_module(f"{NAME}._private.profiling").profile

    @ray.remote
    def measured() -> None:
        with profile("custom event", extra_data={"name": "custom name"}):
            time.sleep(A_MOMENT_S)

    def found() -> list[dict[str, Any]]:
        return [event for event in ray.timeline() if event["cat"] == "custom event"]

    ray.get(measured.remote())
    assert eventually(lambda: len(found()) == 1)
    (event,) = found()
    assert event["dur"] >= A_MOMENT_S * 0.9e6
    assert event["args"]["name"] == "custom name"
    if OWN:  # Ray shows nothing then
        with pytest.raises(ValueError), profile("wrong", extra_data={"a": 1}):
            pass


def test_it_can_be_written_to_a_file(tmp_path: pathlib.Path) -> None:
    ray.get(takes_a_moment.remote())
    file = tmp_path / "timeline.json"

    def written() -> set[str]:
        assert ray.timeline(filename=str(file)) is None
        return {event["cat"] for event in json.loads(file.read_text())}

    assert eventually(lambda: "task::takes_a_moment" in written())
