"""`util.multiprocessing.Pool` where the program is not connected yet."""

from __future__ import annotations

import importlib
import os
import threading
from typing import Any

import pytest

from tests.under_test import NAME, OWN, ray

mp: Any = importlib.import_module(f"{NAME}.util.multiprocessing")
results: Any = importlib.import_module(f"{NAME}.util.multiprocessing.results") if OWN else None


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


@pytest.mark.skipif(not OWN, reason="Ray's thread starts another session")
def test_a_callback_that_is_due_after_the_end_starts_no_session(
    fresh: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended, heard = threading.Event(), threading.Event()

    def late(core: Any, ref: Any, look: Any = results and results.batch_of) -> Any:
        ended.wait(60)
        return look(core, ref)

    monkeypatch.setattr(results, "batch_of", late)
    ray.init(num_cpus=1)
    made = mp.Pool(1)
    made.apply_async(abs, (-1,), callback=lambda _: heard.set(), error_callback=lambda _: heard.set())
    ray.shutdown()
    ended.set()
    assert heard.wait(60)
    assert not ray.is_initialized()
