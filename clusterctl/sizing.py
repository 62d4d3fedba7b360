"""Other sizes and prices for a rehearsal than the cluster's YAML and the trace say: what the options of `clusterctl
simulate` mean. Pure, but for asking a provider with prices for its offers."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace

import msgspec

from autoscaler.config import AutoscalerConfig
from autoscaler.provider import SPOT, Provider, ProviderError
from autoscaler.rehearsal.trace import Offered, Trace
from clusterctl.errors import UsageProblem, from_provider
from clusterctl.spec.definition import ClusterSpec
from clusterctl.spec.load import cluster_limit

_LIMIT = "--max-workers"
_PRICE = "--price"


def resized(spec: ClusterSpec, limits: Sequence[str]) -> ClusterSpec:
    """The spec with other limits: "8" for all workers together, "gpu=2" for those of a type. A type's minimum gives
    way to a lower maximum.

    Raises:
        UsageProblem: a limit cannot be read, or all types' minimum does not fit into it.
    """
    for limit in limits:
        name, number = _split(limit, _LIMIT, "8 or gpu=2")
        if not number.is_integer():
            raise _unreadable(limit, _LIMIT, "8 or gpu=2")
        most = int(number)
        if not name:
            spec = msgspec.structs.replace(spec, max_workers=most)
            continue
        _must_exist(name, spec.available_node_types, _LIMIT)
        kind = spec.available_node_types[name]
        kind = msgspec.structs.replace(kind, max_workers=most, min_workers=min(kind.min_workers, most))
        spec = msgspec.structs.replace(spec, available_node_types={**spec.available_node_types, name: kind})
    least = sum(kind.min_workers for kind in spec.available_node_types.values())
    if least > cluster_limit(spec):
        raise UsageProblem(
            f"{_LIMIT} {cluster_limit(spec)}: the types' min_workers are {least} together",
            f"Lower a type's maximum as well: {_LIMIT} TYPE=N.",
        )
    return spec


def priced(trace: Trace, config: AutoscalerConfig, provider: Provider, prices: Sequence[str]) -> Trace:
    """The trace with offers for every type whose price is known: from `prices` ("gpu=4.8"), the trace itself, or the
    platform, in this order.

    Raises:
        UsageProblem: a price cannot be read.
        CliError: the platform does not tell its offers.
    """
    offers: dict[str, list[Offered]] = dict(trace.offers)
    if provider.capabilities.prices:
        for kind in config.node_types:
            if kind.name not in offers:
                try:
                    found = provider.offers(kind)
                except ProviderError as error:
                    raise from_provider(error) from error
                offers[kind.name] = [
                    Offered(
                        price=one.price, zone=one.zone, market="spot" if one.market == SPOT else "on-demand"
                    )
                    for one in found
                ]
    for entry in prices:
        name, price = _split(entry, _PRICE, "gpu=4.8")
        _must_exist(name, (kind.name for kind in config.node_types), _PRICE)
        offers[name] = [Offered(price=price)]
    return msgspec.structs.replace(trace, offers=offers)


def with_spot(config: AutoscalerConfig, trace: Trace) -> AutoscalerConfig:
    """Types that the trace offers on the spot market are taken there first."""
    on_spot = {name for name, offers in trace.offers.items() if any(one.market == SPOT for one in offers)}
    kinds = tuple(replace(kind, spot=kind.spot or kind.name in on_spot) for kind in config.node_types)
    return replace(config, node_types=kinds)


def _split(text: str, option: str, example: str) -> tuple[str, float]:
    """`gpu=4` -> ("gpu", 4.0); `4` -> ("", 4.0)."""
    name, _, number = text.rpartition("=")
    try:
        value = float(number)
    except ValueError:
        raise _unreadable(text, option, example) from None
    if not (math.isfinite(value) and value >= 0):
        raise _unreadable(text, option, example)
    return name, value


def _unreadable(text: str, option: str, example: str) -> UsageProblem:
    return UsageProblem(f"{option} {text} cannot be read", f"For example {option} {example}.")


def _must_exist(name: str, known: Iterable[str], option: str) -> None:
    names = list(known)
    if name not in names:
        raise UsageProblem(
            f"{option}: there is no node type '{name}'", f"The cluster has {', '.join(names)}."
        )
