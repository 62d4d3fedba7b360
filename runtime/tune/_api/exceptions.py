"""What can go wrong in an experiment."""

from __future__ import annotations


class TuneError(Exception):
    """An experiment cannot go on, or was configured wrongly."""
