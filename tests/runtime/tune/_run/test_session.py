"""A trial's function in its thread: what it returns, and how it ends."""

from __future__ import annotations

from typing import Any

import pytest

from runtime.tune._run.session import Session


class Place:
    """Fills results with nothing."""

    trial_id = "trial"

    def filled(self, metrics: dict[str, Any], _saved: Any) -> dict[str, Any]:
        return metrics

    def resumed(self) -> None:
        pass


def session_of(function: Any) -> Session:
    session = Session(Place(), function)  # type: ignore[arg-type]
    session.start()
    return session


@pytest.mark.parametrize(
    ("returned", "results"),
    [
        (3, [{"_metric": 3}]),
        (0.5, [{"_metric": 0.5}]),
        ({"loss": 1}, [{"loss": 1}]),
        (None, []),
        ("text", []),
    ],
)
def test_a_number_or_a_dict_that_is_returned_is_a_result(returned: Any, results: list[Any]) -> None:
    session = session_of(lambda: returned)
    found: list[Any] = []
    while True:
        batch = session.proceed(1)
        found += [result for result, _saved in batch.results]
        if batch.has_returned:
            break
    assert found == results
