"""Asking for machines before there is work for them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from runtime._core import labels, resources
from runtime._wire.messages.control import RequestResources
from runtime._worker.core_worker import current


def request_resources(
    num_cpus: int | None = None,
    bundles: Sequence[Mapping[str, float]] | None = None,
    bundle_label_selectors: Sequence[Mapping[str, str]] | None = None,
) -> None:
    """Has the cluster grow to hold all of this, and keeps it from shrinking below. Each call replaces the last one of
    this program; `request_resources(num_cpus=0)` takes it back, and so does the program's end.

    Args:
        num_cpus: this many bundles of one CPU.
        bundles: resources per bundle, each to fit on one node, e.g. `[{"CPU": 4, "GPU": 1}]`.
        bundle_label_selectors: which nodes may hold each of `bundles`, by their labels, in the same order.

    Raises:
        TypeError: an argument has the wrong type.
        ValueError: an amount is negative or too fine, or a selector cannot be read.
        AssertionError: there is not one selector for each bundle.
    """
    if num_cpus is not None and (isinstance(num_cpus, bool) or not isinstance(num_cpus, int)):
        raise TypeError(f"num_cpus must be an int, not {type(num_cpus).__name__}")
    if bundles is not None and not all(isinstance(bundle, Mapping) for bundle in bundles):
        raise TypeError("bundles must be a list of dicts from resource to amount")
    if num_cpus is not None and num_cpus < 0:
        raise ValueError(f"num_cpus must not be negative: {num_cpus}")
    selectors = list(bundle_label_selectors or ())
    if selectors and len(selectors) != len(bundles or ()):
        raise AssertionError(
            "If bundle_label_selectors is provided, bundles must also be provided and have the same length: "
            f"{len(selectors)} selectors for {len(bundles or ())} bundles."
        )
    for selector in selectors:
        if not isinstance(selector, Mapping):
            raise TypeError("bundle_label_selectors must be a list of dicts from label to condition")
        labels.check_selector(selector)
    wanted = [resources.to_units({"CPU": 1})] * (num_cpus or 0)
    wanted += [resources.to_units(bundle) for bundle in bundles or ()]
    core = current()
    if selectors:
        selectors = [{} for _ in range(num_cpus or 0)] + selectors
    core.ask(RequestResources(core.job_id.hex(), wanted, selectors=[dict(one) for one in selectors]))
