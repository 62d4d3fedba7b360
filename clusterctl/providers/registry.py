"""Finds the entry of each type of provider, and makes providers by it."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Mapping

from clusterctl.errors import UsageProblem
from clusterctl.spec import provider_names
from clusterctl.spec.definition import ClusterSpec

from .protocol import Entry, ForHead, Make, OperatorProvider, Seat


def entry(name: str) -> Entry:
    """The entry of a type of provider."""
    found = provider_names.entry(name)
    assert isinstance(found, Entry)
    return found


def make(
    spec: ClusterSpec, cluster_id: str, settings: Mapping[str, str], seat: Seat = Seat.OPERATOR
) -> OperatorProvider:
    """The provider of a spec, for one cluster.

    Args:
        settings: "owner_file" (see `ownership`), "folder" (for what the provider keeps of the cluster) and "cache" (for
            what clusters have in common), or all of another such provider's `settings()`. On the head those of
            `for_head`.
        seat: where it will run.

    Raises:
        UsageProblem: what the platform's machines are reached with is not installed here, or the class of an external
            provider cannot be used.
    """
    name = spec.provider.type_name
    found = entry(name)
    for module in found.modules:
        if not _is_there(module):  # before anything begins: found missing later, it would be a traceback
            raise UsageProblem(
                f"clusters of provider type '{name}' need the Python package of {module}, which is not installed",
                f"Install it: pip install 'clusterctl[{found.extra}]'",
            )
    make: Make = found.make or importlib.import_module(f"{__package__}.{name}.provider").PROVIDER
    return make(spec, cluster_id, settings, seat)


def for_head(spec: ClusterSpec, provider: OperatorProvider) -> ForHead:
    """What the head needs to make a provider again."""
    return entry(spec.provider.type_name).for_head(spec, provider)


def ships(path: str) -> bool:
    """Whether a file of a package, by its path in site-packages, is of use to a head."""
    return all(entry(name).ships(path) for name in provider_names.NAMES)


def _is_there(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:  # one that it lies in is missing
        return False
