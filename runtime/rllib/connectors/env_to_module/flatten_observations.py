"""Flattened observations, between environment and module."""

from __future__ import annotations

from ..common.flatten_observations import FlattenObservations

__all__ = ["FlattenObservations"]
