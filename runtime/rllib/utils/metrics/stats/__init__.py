"""What a `MetricsLogger` keeps under each key: values, and how they reduce to one and merge over processes."""

from __future__ import annotations

from .base import StatsBase
from .counts import LifetimeSumStats, SumStats
from .items import ItemSeriesStats, ItemStats
from .percentiles import PercentilesStats, compute_percentiles
from .series import EmaStats, MaxStats, MeanStats, MinStats, SeriesStats

__all__ = [
    "EmaStats",
    "ItemSeriesStats",
    "ItemStats",
    "LifetimeSumStats",
    "MaxStats",
    "MeanStats",
    "MinStats",
    "PercentilesStats",
    "SeriesStats",
    "StatsBase",
    "SumStats",
    "compute_percentiles",
]
