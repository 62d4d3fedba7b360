"""Requests for machines before there is work for them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from numbers import Real
from typing import Any

from runtime._core import labels, resources
from runtime._process.core_worker import current_or_none
from runtime._wire.messages.control import RequestResources

_Wanted = tuple[dict[str, int], dict[str, str]]


def request_resources(
    num_cpus: int | None = None,
    bundles: Sequence[Mapping[str, float]] | None = None,
    bundle_label_selectors: Sequence[Mapping[str, str]] | None = None,
    *,
    ttl_s: float | None = None,
    owner: str | None = None,
) -> None:
    """Makes the cluster grow until it has these resources, in use or not, and keeps it from shrinking below.

    Each call replaces the previous request of the same owner; `request_resources(num_cpus=0)` withdraws it. Requests of
    different owners add up. A request ends with its program, unless it has an `owner` and a `ttl_s`: then it lasts for
    that time.

    Args:
        num_cpus: this many bundles of one CPU.
        bundles: resources per bundle, each to fit on one node, e.g. `[{"CPU": 4, "GPU": 1}]`.
        bundle_label_selectors: a selector of node labels for each of `bundles`.
        ttl_s: seconds after which the request expires.
        owner: name of the request's owner; "" or None: this program.

    Raises:
        TypeError: an argument has the wrong type.
        ValueError: an amount is negative or too fine, a selector is malformed, there is not one selector for each
            bundle, or `ttl_s` is not positive.
        RuntimeError: the program is not connected to a cluster.
    """
    if num_cpus is not None and not isinstance(num_cpus, int):
        raise TypeError("num_cpus should be of type int.")
    if num_cpus is not None and num_cpus < 0:
        raise ValueError(f"num_cpus must not be negative: {num_cpus}")
    if ttl_s is not None and not 0 < ttl_s < math.inf:
        raise ValueError(f"ttl_s must be a number of seconds above zero, not {ttl_s}")
    wanted = list(_wanted(bundles, bundle_label_selectors))
    counts: dict[tuple[frozenset[tuple[str, int]], frozenset[tuple[str, str]]], int] = {}
    if num_cpus:
        counts[frozenset(resources.to_units({"CPU": 1}).items()), frozenset()] = int(num_cpus)
    for bundle, selector in wanted:
        if bundle:
            key = frozenset(bundle.items()), frozenset(selector.items())
            counts[key] = counts.get(key, 0) + 1
    core = current_or_none()
    if core is None:
        raise RuntimeError("Ray is not initialized yet: call init() first.")
    core.ask(
        RequestResources(
            owner or core.job_id.hex(),
            [dict(bundle) for bundle, _ in counts],
            ttl_s or 0.0,
            [dict(selector) for _, selector in counts],
            list(counts.values()),
            b"" if owner and ttl_s else core.job_id,
        )
    )


def _wanted(bundles: Any, selectors: Any) -> Iterable[_Wanted]:
    """Checks bundles and selectors, and pairs them."""
    if bundles is None:
        if selectors is not None:
            raise ValueError("`bundles` must be provided when `bundle_label_selectors` is specified.")
        return
    if not isinstance(bundles, Sequence):
        raise TypeError("bundles should be of type List")
    if selectors is None:
        selectors = [{}] * len(bundles)
    elif len(selectors) != len(bundles):
        raise ValueError(
            "`bundle_label_selectors` must be a list with length equal to the number of bundles: "
            f"{len(selectors)} selectors for {len(bundles)} bundles."
        )
    for bundle, selector in zip(bundles, selectors, strict=True):
        if not isinstance(bundle, Mapping):
            raise TypeError("each bundle should be a Dict.")
        for name, amount in bundle.items():
            if not isinstance(name, str):
                raise TypeError("each bundle key should be str.")
            if isinstance(amount, bool) or not isinstance(amount, Real):
                raise TypeError("each bundle value should be a number (int or float).")
        if not isinstance(selector, Mapping):
            raise ValueError("each of bundle_label_selectors must be a dict from label to condition")
        try:
            labels.check_selector(selector)
        except TypeError as error:
            raise ValueError(str(error)) from None
        yield resources.to_units(bundle), dict(selector)
