"""Metrics of deployments: those of `runtime.util.metrics` with tags that tell where a value comes from.

Made in a replica, a metric has the tags `deployment`, `replica` and `application` besides its own. A metric with the
tag key `route` gets the route of the current request, unless a value is given.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from runtime.serve import context
from runtime.util import metrics

_ROUTE = "route"
LATENCIES_MS = [1, 2, 5, 10, 20, 50, 100, 200, 300, 400, 500, 1000, 2000, 5000, 10_000, 60_000, 300_000]
"""Boundaries of the latencies that Serve measures."""


def _replica_tags() -> dict[str, str]:
    replica = context.current_replica()
    if replica is None:
        return {}
    tags = {"deployment": replica.deployment, "replica": replica.replica_tag}
    return tags | {"application": replica.app_name} if replica.app_name else tags


def _check(names: Sequence[str] | Mapping[str, str], reserved: Mapping[str, str]) -> None:
    for name in names:
        if name in reserved:
            raise ValueError(f"The tag '{name}' is reserved: Serve sets it. Rename the tag.")


class _Tagged(metrics.Metric):
    """Adds the tags of the replica and of the request."""

    def _tag(self, tag_keys: tuple[str, ...] | None) -> tuple[str, ...]:
        if tag_keys and not isinstance(tag_keys, tuple):
            raise TypeError(f"tag_keys should be a tuple type, got: {type(tag_keys)}")
        self._own_tags = _replica_tags()
        _check(tag_keys or (), self._own_tags)
        return (*self._own_tags, *(tag_keys or ()))

    def set_default_tags(self, default_tags: Mapping[str, str]) -> metrics.Metric:
        """Sets default values of the metric's own tags. Returns the metric.

        Raises:
            ValueError: the metric does not have such a tag, or Serve sets it.
            TypeError: a value is not a string.
        """
        _check(default_tags, self._own_tags)
        return super().set_default_tags({**default_tags, **self._own_tags})

    def _pairs(self, tags: Mapping[str, str] | None) -> tuple[tuple[str, str], ...]:
        if _ROUTE in self._tag_keys and _ROUTE not in (tags or {}):
            tags = {**(tags or {}), _ROUTE: context.current_request().route}
        return super()._pairs(tags)

    def __reduce__(self) -> tuple[object, ...]:
        own = {key: value for key, value in self._default_tags.items() if key not in self._own_tags}
        keys = tuple(key for key in self._tag_keys if key not in self._own_tags)
        return _rebuild, (type(self), self._arguments()[:-1], keys, own)


def _rebuild(
    make: Callable[..., metrics.Metric],
    arguments: tuple[object, ...],
    keys: tuple[str, ...],
    tags: dict[str, str],
) -> metrics.Metric:
    return make(*arguments, keys).set_default_tags(tags)


class Counter(_Tagged, metrics.Counter):
    """A number that grows. See `runtime.util.metrics.Counter`."""

    def __init__(self, name: str, description: str = "", tag_keys: tuple[str, ...] | None = None) -> None:
        super().__init__(name, description, self._tag(tag_keys))
        self.set_default_tags({})


class Gauge(_Tagged, metrics.Gauge):
    """A number that goes up and down. See `runtime.util.metrics.Gauge`."""

    def __init__(self, name: str, description: str = "", tag_keys: tuple[str, ...] | None = None) -> None:
        super().__init__(name, description, self._tag(tag_keys))
        self.set_default_tags({})


class Histogram(_Tagged, metrics.Histogram):
    """Counts of values between boundaries. See `runtime.util.metrics.Histogram`."""

    def __init__(
        self,
        name: str,
        description: str = "",
        boundaries: Sequence[float] | None = None,
        tag_keys: tuple[str, ...] | None = None,
    ) -> None:
        super().__init__(name, description, boundaries, self._tag(tag_keys))
        self.set_default_tags({})


__all__ = ["Counter", "Gauge", "Histogram"]
