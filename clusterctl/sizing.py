"""Other prices for a rehearsal than the platform and the trace say: what the options of `clusterctl simulate` mean.
Pure, but for asking a provider with prices for its offers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import msgspec

from autoscaler.config import AutoscalerConfig
from autoscaler.provider import SPOT, Provider, ProviderError
from autoscaler.rehearsal.trace import Offered, Trace
from clusterctl.errors import from_provider
from clusterctl.spec.overrides import must_exist, split

_PRICE = "--price"


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
        name, price = split(entry, _PRICE, "gpu=4.8")
        must_exist(name, (kind.name for kind in config.node_types), _PRICE)
        offers[name] = [Offered(price=price)]
    return msgspec.structs.replace(trace, offers=offers)


def with_spot(config: AutoscalerConfig, trace: Trace) -> AutoscalerConfig:
    """Types that the trace offers on the spot market are taken there first."""
    on_spot = {name for name, offers in trace.offers.items() if any(one.market == SPOT for one in offers)}
    kinds = tuple(replace(kind, spot=kind.spot or kind.name in on_spot) for kind in config.node_types)
    return replace(config, node_types=kinds)
