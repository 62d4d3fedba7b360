"""Metrics of programs. Each node serves those of its processes over HTTP as `ray_<name>`; `nodes()` has the port as
`MetricsExportPort`.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

from runtime._process.metrics import metrics

_VALID_NAME = re.compile(r"^[a-zA-Z_:][a-zA-Z0-9_:]*$")


class Metric:
    """Base class of counters, gauges and histograms.

    Args:
        name: letters, digits, `_`.
        description: text for people.
        tag_keys: the keys of the tags that every value has.

    Raises:
        ValueError: the name is empty.
        TypeError: `tag_keys` is not a tuple of strings.
    """

    _kind = ""

    def __init__(self, name: str, description: str = "", tag_keys: tuple[str, ...] | None = None) -> None:
        if not name:
            raise ValueError("Empty name is not allowed. Please provide a metric name.")
        self._discarded = _VALID_NAME.match(name) is None
        if self._discarded:
            warnings.warn(
                f"Invalid metric name: {name}. The metric is discarded: names consist of letters, digits, _ and :, and "
                "do not begin with a digit.",
                UserWarning,
                stacklevel=3,
            )
        self._name = name
        self._description = description
        self._default_tags: dict[str, str] = {}
        self._tag_keys = tag_keys or ()
        if not isinstance(self._tag_keys, tuple):
            raise TypeError(f"tag_keys should be a tuple type, got: {type(self._tag_keys)}")
        for key in self._tag_keys:
            if not isinstance(key, str):
                raise TypeError(f"Tag keys must be str, got {type(key)}.")

    def set_default_tags(self, default_tags: Mapping[str, str]) -> Metric:
        """Sets default values of tags. Returns the metric.

        Raises:
            ValueError: the metric does not have such a tag.
            TypeError: a value is not a string.
        """
        for key, value in default_tags.items():
            if key not in self._tag_keys:
                raise ValueError(f"Unrecognized tag key {key}.")
            if not isinstance(value, str):
                raise TypeError(f"Tag values must be str, got {type(value)}.")
        self._default_tags = dict(default_tags)
        return self

    @property
    def info(self) -> dict[str, Any]:
        """Name, description, tag keys and default tags."""
        return {
            "name": self._name,
            "description": self._description,
            "tag_keys": self._tag_keys,
            "default_tags": self._default_tags,
        }

    _boundaries: Sequence[float] = ()

    def _record(self, value: float, tags: Mapping[str, str] | None) -> None:
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise TypeError(f"value must be int or float, got {type(value)}.")
        pairs = self._pairs(tags)
        if not self._discarded:
            metrics.record(self._kind, self._name, self._description, self._boundaries, float(value), pairs)

    def _pairs(self, tags: Mapping[str, str] | None) -> tuple[tuple[str, str], ...]:
        for tag in (tags or {}).values():
            if not isinstance(tag, str):
                raise TypeError(f"Tag values must be str, got {type(tag)}.")
        final = {**self._default_tags, **(tags or {})}
        missing = [key for key in self._tag_keys if key not in final]
        if missing:
            raise ValueError(f"Missing value for tag key(s): {','.join(missing)}.")
        return tuple((key, final[key]) for key in self._tag_keys)

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), self._arguments(), self._default_tags)

    def _arguments(self) -> tuple[Any, ...]:
        return self._name, self._description, self._tag_keys


def _rebuild(cls: type[Metric], arguments: tuple[Any, ...], default_tags: dict[str, str]) -> Metric:
    return cls(*arguments).set_default_tags(default_tags)


class Counter(Metric):
    """A number that grows; see `Metric`."""

    _kind = "counter"

    def inc(self, value: float = 1.0, tags: Mapping[str, str] | None = None) -> None:
        """Adds `value`.

        Raises:
            ValueError: the value is not positive, or a tag is missing.
            TypeError: the value is not a number, or a tag is not a string.
        """
        if isinstance(value, int | float) and value <= 0:
            raise ValueError(f"value must be >0, got {value}")
        self._record(value, tags)


class Gauge(Metric):
    """A number that goes up and down. See `Metric`."""

    _kind = "gauge"

    def set(self, value: float | None, tags: Mapping[str, str] | None = None) -> None:
        """Sets the gauge to `value`; None has no effect.

        Raises:
            ValueError: a tag is missing.
            TypeError: the value is not a number, or a tag is not a string.
        """
        if value is not None:
            self._record(value, tags)


class Histogram(Metric):
    """Counts of values between boundaries. See `Metric`.

    Args:
        boundaries: upper ends of the buckets, positive and ascending.

    Raises:
        ValueError: no boundary is given, or one is not positive.
    """

    _kind = "histogram"

    def __init__(
        self,
        name: str,
        description: str = "",
        boundaries: Sequence[float] | None = None,
        tag_keys: tuple[str, ...] | None = None,
    ) -> None:
        super().__init__(name, description, tag_keys)
        if not boundaries:
            raise ValueError(
                "boundaries argument should be provided: a Histogram counts what lies between them, as in "
                'Histogram("latency_s", boundaries=[0.01, 0.1, 1.0])'
            )
        for index, boundary in enumerate(boundaries):
            if boundary <= 0:
                raise ValueError(
                    f"Invalid `boundaries` argument at index {index}, {boundaries}. Use positive values."
                )
        self.boundaries = self._boundaries = list(boundaries)

    def observe(self, value: float, tags: Mapping[str, str] | None = None) -> None:
        """Counts `value` in its bucket.

        Raises:
            ValueError: a tag is missing.
            TypeError: the value is not a number, or a tag is not a string.
        """
        self._record(value, tags)

    def _observe_all(self, values: Sequence[float], tags: Mapping[str, str] | None = None) -> None:
        """Counts many values with the same tags, for a fraction of the time that `observe` takes for each."""
        pairs = self._pairs(tags)
        if not self._discarded:
            metrics.count_all(self._name, self._description, self._boundaries, values, pairs)

    @property
    def info(self) -> dict[str, Any]:
        """As for `Metric`, with the boundaries."""
        return {**super().info, "boundaries": self.boundaries}

    def _arguments(self) -> tuple[Any, ...]:
        return self._name, self._description, self.boundaries, self._tag_keys


__all__ = ["Counter", "Gauge", "Histogram"]
