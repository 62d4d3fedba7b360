"""Metrics of things that end."""

from __future__ import annotations

from runtime._process.metrics import metrics


def remove(key: str, value: str) -> None:
    """Removes all values of this process's metrics with a tag."""
    metrics.remove((key, value))
