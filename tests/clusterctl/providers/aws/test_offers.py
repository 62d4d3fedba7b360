"""Where machines are to be had, and what they cost."""

from __future__ import annotations

import pytest

from autoscaler.provider import (
    ON_DEMAND,
    SPOT,
)
from clusterctl.launcher.costs import estimate
from tests.clusterctl.providers.aws.cluster import Make
from tests.testbed.aws import Aws


def test_offers_have_prices_zones_and_resources(aws: Aws, cluster: Make) -> None:
    aws.world.prices = {"c5.xlarge": 0.19}
    one = cluster(worker=", zones: [us-east-1c, us-east-1a]")
    offers = one.provider.offers(one.worker)
    assert [(offer.zone, offer.market, offer.price) for offer in offers] == [
        ("us-east-1c", ON_DEMAND, 0.19),
        ("us-east-1a", ON_DEMAND, 0.19),
    ]
    assert offers[0].resources["CPU"] == 4
    assert one.provider.capabilities.price_source.startswith("AWS's price list of 20")
    assert cluster().provider.offers(one.worker) == offers
    assert aws.calls["GetProducts"] == 1, "what AWS has told is kept for a day"


def test_the_table_serves_where_aws_may_not_be_asked(aws: Aws, cluster: Make) -> None:
    one = cluster()
    assert one.provider.offers(one.worker)[0].price == pytest.approx(0.17)
    one.provider.offers(one.head)
    assert aws.calls["GetProducts"] == 1, "who refused is left alone for a while"
    assert "days old" in one.provider.capabilities.price_source


def test_spot_comes_first_and_others_follow(aws: Aws, cluster: Make) -> None:
    aws.world.spot_price = 0.05
    one = cluster(worker=", spot: true, zones: [us-east-1a, us-east-1b]")
    found = [(offer.zone, offer.market, offer.price) for offer in one.provider.offers(one.worker)]
    assert found == [
        ("us-east-1a", SPOT, 0.05),
        ("us-east-1b", SPOT, 0.05),
        ("us-east-1a", ON_DEMAND, 0.17),
        ("us-east-1b", ON_DEMAND, 0.17),
    ]
    only = cluster(config=", InstanceMarketOptions: {MarketType: spot}")
    assert {offer.market for offer in only.provider.offers(only.worker)} == {SPOT}


def test_dearer_offers_are_none(aws: Aws, cluster: Make) -> None:
    aws.world.spot_price = 0.05
    one = cluster(worker=", spot: true, max_price: 0.1")
    assert {offer.market for offer in one.provider.offers(one.worker)} == {SPOT}
    one.provider.prepare(one.kinds)
    made = one.create("a").machines[0]
    assert made.market == SPOT
    aws.world.spot_price = 0.2
    for file in one.provider._prices.files():
        file.unlink(missing_ok=True)
    assert cluster(worker=", spot: true, max_price: 0.1").provider.offers(one.worker) == []


def test_no_price_of_another_region_is_shown(aws: Aws, cluster: Make) -> None:
    one = cluster(region="eu-west-1")
    aws.world.prices = {"m5.large": 0.107}
    shown = estimate(one.spec, one.provider, one.kinds)
    rows = {row.node_type: row.price for row in shown.rows}
    assert rows == {"head": 0.107, "worker": None}
    assert shown.unknown == ("worker",)
    assert "what it does not say: none of eu-west-1" in shown.source
    assert cluster(region="eu-west-1").provider.capabilities.price_source.startswith("none of eu-west-1")
