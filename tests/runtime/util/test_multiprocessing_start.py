"""`util.multiprocessing.Pool` where the program is not connected yet."""

from __future__ import annotations

import importlib
import os
from typing import Any

import pytest

from tests.under_test import NAME, ray

mp: Any = importlib.import_module(f"{NAME}.util.multiprocessing")


def test_a_pool_starts_what_it_needs(fresh: None) -> None:
    made = mp.Pool(processes=2)
    assert ray.cluster_resources()["CPU"] == 2
    assert len(set(made.map(lambda _: os.getpid(), range(10)))) == 2
    made.terminate()
    made.join()


def test_a_pool_in_a_session_that_runs(fresh: None) -> None:
    ray.init(num_cpus=1)
    with mp.Pool() as made:
        assert made.apply(abs, (-1,)) == 1
    with pytest.raises(ValueError, match="CPUs"):
        mp.Pool(2)
