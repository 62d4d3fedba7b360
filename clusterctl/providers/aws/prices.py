"""What machines cost: on-demand prices of AWS's price list (`pricing:GetProducts`), spot prices of EC2's own history.

Both are of Linux machines without further licences. Where AWS does not say, a table that comes along serves.
"""

from __future__ import annotations

import datetime
import json
from collections.abc import Iterable, Mapping
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

import msgspec

from autoscaler.provider import SPOT, NodeType
from clusterctl.providers.prices import Prices, age

from . import launches
from .clients import Clients

_SPOT_FRESH_S = 3600.0
_PRODUCT = "Linux/UNIX"


class Table(msgspec.Struct, frozen=True):
    """The table that comes along: region -> instance type -> price per hour. `as_of`: the day of the prices."""

    as_of: str
    source: str
    on_demand: dict[str, dict[str, float]]


@cache
def table() -> Table:
    """The table."""
    return msgspec.json.decode(resources.files(__package__).joinpath("prices.json").read_bytes(), type=Table)


def says(of: Table, region: str, today: datetime.date) -> str:
    """What a table knows of a region, in words. Pure."""
    if region not in of.on_demand:
        known = ", ".join(of.on_demand)
        return f"none of {region}: AWS did not say, and the table that comes along has {known}"
    old = today - datetime.date.fromisoformat(of.as_of)
    return f"a table of {of.as_of}{age(old.total_seconds())}"


def of_product(text: str) -> float:
    """The price per hour in an entry of the price list; 0.0 when it has none. Pure."""
    terms = json.loads(text).get("terms", {}).get("OnDemand", {})
    prices = [
        float(dimension["pricePerUnit"].get("USD", 0.0))
        for term in terms.values()
        for dimension in term["priceDimensions"].values()
        if dimension.get("unit") == "Hrs"
    ]
    return max(prices, default=0.0)


def latest(history: Iterable[Mapping[str, Any]]) -> dict[str, float]:
    """Zone -> the youngest price of a spot price history. Pure."""
    by_age = sorted(history, key=lambda entry: entry["Timestamp"])
    return {entry["AvailabilityZone"]: float(entry["SpotPrice"]) for entry in by_age}


class AwsPrices:
    """The prices of one region.

    Args:
        folder: where those that AWS has told are kept.
    """

    def __init__(self, clients: Clients, folder: Path) -> None:
        self._clients = clients
        place = clients.place
        self._place = f"{place.endpoint_url} {place.region}".strip()
        self._listed = Prices(folder / "aws-on-demand-prices.json", self._ask_listed)
        self._spot = Prices(folder / "aws-spot-prices.json", self._ask_history, _SPOT_FRESH_S)

    def of(self, node_type: NodeType, instance_type: str, market: str, zone: str = "") -> float | None:
        """Per hour; None: unknown; 0.0: unknown, but EC2 itself keeps spot machines to `max_price`."""
        topic = f"{self._place} {instance_type}"
        if market == SPOT:
            return self._spot.of(topic).get(zone, 0.0)
        if not launches.has_list_price(node_type):
            return None
        in_table = table().on_demand.get(self._clients.place.region, {})
        return self._listed.of(topic).get("") or in_table.get(instance_type)

    def source(self) -> str:
        """Where the prices of on-demand machines came from, in words."""
        of_table = says(table(), self._clients.place.region, datetime.date.today())
        return self._listed.source("AWS's price list", of_table)

    def files(self) -> tuple[Path, ...]:
        """Where the prices are kept."""
        return self._listed.file, self._spot.file

    # -- inside

    def _ask_listed(self, topic: str) -> Mapping[str, float]:
        wanted = {
            "instanceType": topic.rpartition(" ")[2],
            "regionCode": self._clients.place.region,
            "operatingSystem": "Linux",
            "tenancy": "Shared",
            "preInstalledSw": "NA",
            "capacitystatus": "Used",
        }
        filters = [{"Type": "TERM_MATCH", "Field": key, "Value": value} for key, value in wanted.items()]
        asked: dict[str, Any] = {"ServiceCode": "AmazonEC2", "Filters": filters, "MaxResults": 10}
        answer = self._clients.call("pricing", "get_products", patience_s=0.0, **asked)
        price = max((of_product(text) for text in answer["PriceList"]), default=0.0)
        return {"": price} if price else {}

    def _ask_history(self, topic: str) -> Mapping[str, float]:
        asked: dict[str, Any] = {
            "InstanceTypes": [topic.rpartition(" ")[2]],
            "ProductDescriptions": [_PRODUCT],
            "StartTime": datetime.datetime.now(datetime.UTC),
        }
        return latest(
            self._clients.pages("describe_spot_price_history", "SpotPriceHistory", patience_s=0.0, **asked)
        )
