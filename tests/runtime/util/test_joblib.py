"""joblib over the cluster."""

from __future__ import annotations

import importlib
import os
from typing import Any

import pytest

from tests.under_test import NAME, ray

joblib: Any = pytest.importorskip("joblib")
pytestmark = pytest.mark.usefixtures("session")


def test_joblib_runs_in_actors() -> None:
    importlib.import_module(f"{NAME}.util.joblib").register_ray()
    with joblib.parallel_backend("ray"):
        results = joblib.Parallel()(joblib.delayed(pow)(n, 2) for n in range(20))
        pids = joblib.Parallel(n_jobs=2)(joblib.delayed(os.getpid)() for _ in range(8))
    assert results == [n * n for n in range(20)]
    assert os.getpid() not in pids
    options = {"n_jobs": 2, "ray_remote_args": {"num_cpus": 1}}
    with joblib.parallel_backend("ray", **options), pytest.raises(ValueError, match="bad"):
        joblib.Parallel()(joblib.delayed(int)("bad") for _ in range(3))
    assert ray.is_initialized()
