"""What drivers print about spilling, with RAY_verbose_spill_logs."""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np
import pytest

from tests.polling import eventually
from tests.under_test import init, ray

MIB = 2**20
LINE = r"\(\S+\)\S* Spilled \d+ MiB, \d+ objects, write throughput \d+ MiB/s\."


@pytest.fixture(autouse=True)
def session(no_leaks: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("RAY_verbose_spill_logs", str(20 * MIB))
    init(num_cpus=1, object_store_memory=80 * MIB)
    yield
    ray.shutdown()


def test_the_driver_prints_how_much_was_spilled(capfd: pytest.CaptureFixture[str]) -> None:
    printed = ""

    def is_printed() -> bool:
        nonlocal printed
        captured = capfd.readouterr()
        printed += captured.out + captured.err
        return re.search(LINE, printed) is not None

    refs = [ray.put(np.zeros(10 * MIB, np.uint8)) for _ in range(16)]
    assert eventually(is_printed), printed
    assert "RAY_verbose_spill_logs=0" in printed
    del refs
