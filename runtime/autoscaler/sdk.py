"""Asking for machines before there is work for them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from runtime._core import resources
from runtime._wire.messages.control import RequestResources
from runtime._worker.core_worker import current


def request_resources(
    num_cpus: int | None = None, bundles: Sequence[Mapping[str, float]] | None = None
) -> None:
    """Has the cluster grow to hold all of this, and keeps it from shrinking below. Each call replaces the last one of
    this program; `request_resources(num_cpus=0)` takes it back, and so does the program's end.

    Args:
        num_cpus: this many bundles of one CPU.
        bundles: resources per bundle, each to fit on one node, e.g. `[{"CPU": 4, "GPU": 1}]`.

    Raises:
        TypeError: an argument has the wrong type.
        ValueError: an amount is negative or too fine.
    """
    if num_cpus is not None and (isinstance(num_cpus, bool) or not isinstance(num_cpus, int)):
        raise TypeError(f"num_cpus must be an int, not {type(num_cpus).__name__}")
    if bundles is not None and not all(isinstance(bundle, Mapping) for bundle in bundles):
        raise TypeError("bundles must be a list of dicts from resource to amount")
    if num_cpus is not None and num_cpus < 0:
        raise ValueError(f"num_cpus must not be negative: {num_cpus}")
    wanted = [resources.to_units({"CPU": 1})] * (num_cpus or 0)
    wanted += [resources.to_units(bundle) for bundle in bundles or ()]
    core = current()
    core.ask(RequestResources(core.job_id.hex(), wanted))
