"""Configurations that cannot be meant."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from runtime import tune


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: tune.TuneConfig(mode="best"), "mode must be"),
        (lambda: tune.TuneConfig(mode=["min", "best"]), "mode must be"),
        (lambda: tune.TuneConfig(num_samples=0), "num_samples must be"),
        (lambda: tune.TuneConfig(max_concurrent_trials=-1), "max_concurrent_trials"),
        (lambda: tune.CheckpointConfig(checkpoint_frequency=-1), "checkpoint_frequency"),
        (lambda: tune.CheckpointConfig(num_to_keep=0), "num_to_keep"),
        (lambda: tune.FailureConfig(fail_fast="soon"), "fail_fast must be"),
        (lambda: tune.FailureConfig(fail_fast=True, max_failures=1), "fail_fast needs"),
    ],
)
def test_what_is_refused(make: Any, text: str) -> None:
    with pytest.raises(ValueError, match=text):
        make()


def test_times_and_files() -> None:
    assert tune.TuneConfig(time_budget_s=timedelta(minutes=2)).budget_s == 120
    assert tune.TuneConfig(time_budget_s=3).budget_s == 3
    assert tune.RunConfig().log_files == ("", "")
    assert tune.RunConfig(log_to_file=True).log_files == ("stdout", "stderr")
    assert tune.RunConfig(log_to_file="both").log_files == ("both", "both")
    assert tune.RunConfig(log_to_file=("a", "b")).log_files == ("a", "b")
