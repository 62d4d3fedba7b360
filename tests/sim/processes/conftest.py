"""The real code logs errors of its callbacks and goes on: here each of them fails the test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from runtime._process.metrics import metrics
from runtime._transport import failures


@pytest.fixture(autouse=True)
def no_failures(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Fails a test in which a callback has failed."""
    yield
    failed = [record for record in caplog.get_records("call") if record.name == failures.log.name]
    assert not failed, failed[0].getMessage() + "\n" + (failed[0].exc_text or "")


@pytest.fixture(autouse=True)
def no_metrics(monkeypatch: pytest.MonkeyPatch) -> None:
    """Simulated processes share those of this one, in which other tests may have measured something."""
    monkeypatch.setattr(metrics, "changed", False)
    monkeypatch.setattr(metrics, "_by_name", {})
