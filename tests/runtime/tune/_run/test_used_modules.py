"""Which modules trials are forked with."""

from __future__ import annotations

import functools
import json
from typing import Any

import msgspec
import psutil

from runtime import tune
from runtime.tune._run.used_modules import used_modules


def helper() -> Any:
    return msgspec.Struct


def trial(config: dict[str, Any], other: int = 0) -> Any:
    import cloudpickle
    import not_installed  # type: ignore[import-not-found]

    return json, helper(), cloudpickle, not_installed


class Trial(tune.Trainable):
    def step(self) -> dict[str, Any]:
        return {"cpus": [psutil.cpu_count() for _ in range(2)]}


def test_installed_modules_that_the_program_has_imported_are_found() -> None:
    assert used_modules(trial) == ["cloudpickle", "msgspec"]
    assert used_modules(functools.partial(trial, other=1)) == ["cloudpickle", "msgspec"]
    assert used_modules(Trial) == ["psutil"]
    assert used_modules(lambda config: {"x": 1}) == []
