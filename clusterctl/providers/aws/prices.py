"""What machines cost: what AWS says where it may be asked, else a table that comes along and knows its age.

On-demand prices are those of the price list (`pricing:GetProducts`), spot prices the latest of EC2's own history. Both
are of Linux machines without further licences.
"""

from __future__ import annotations

import datetime
import json
import logging
import threading
import time
from functools import cache
from importlib import resources
from typing import Any

import msgspec

from autoscaler.provider import ProviderError

from .clients import Clients

log = logging.getLogger(__name__)

_FRESH_S = 3600.0
_AGAIN_S = 600.0
_PATIENCE_S = 0.0
_LISTED, _TABLE = "price list", "table"
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


def age_days(as_of: str, today: datetime.date) -> int:
    """How old prices of that day are. Pure."""
    return (today - datetime.date.fromisoformat(as_of)).days


def says(of: Table, region: str, today: datetime.date) -> str:
    """What a table knows of a region, in words. Pure."""
    if region not in of.on_demand:
        known = ", ".join(of.on_demand)
        return f"none of {region}: AWS was not to be asked, and the table that comes along has {known}"
    return f"a table of {of.as_of}, {age_days(of.as_of, today)} days old"


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


def latest(history: list[dict[str, Any]]) -> dict[str, float]:
    """Zone -> the youngest price of a spot price history. Pure."""
    found: dict[str, tuple[Any, float]] = {}
    for entry in history:
        zone, at = entry["AvailabilityZone"], entry["Timestamp"]
        if zone not in found or at > found[zone][0]:
            found[zone] = (at, float(entry["SpotPrice"]))
    return {zone: price for zone, (_, price) in found.items()}


class Prices:
    """The prices of one region. What AWS said holds for an hour; where it refuses to say, it is left alone for a
    while."""

    def __init__(self, clients: Clients) -> None:
        self._clients = clients
        self._lock = threading.Lock()
        self._known: dict[tuple[str, str], tuple[float, dict[str, float]]] = {}
        self._silent_until: dict[str, float] = {}
        self._sources: set[str] = set()

    def on_demand(self, instance_type: str) -> float:
        """Per hour; 0.0 when nobody knows."""
        price = self._ask("on-demand", instance_type).get("", 0.0)
        if price:
            self._sources.add(_LISTED)
            return price
        self._sources.add(_TABLE)
        return table().on_demand.get(self._clients.place.region, {}).get(instance_type, 0.0)

    def spot(self, instance_type: str) -> dict[str, float]:
        """Zone -> price per hour."""
        return self._ask("spot", instance_type)

    def source(self) -> str:
        """Where the prices of on-demand machines came from, in words."""
        of_table = says(table(), self._clients.place.region, datetime.date.today())
        if _LISTED not in self._sources:
            return of_table
        if _TABLE not in self._sources:
            return "AWS's price list of today"
        return f"AWS's price list of today; what it does not say: {of_table}"

    # -- inside

    def _ask(self, market: str, instance_type: str) -> dict[str, float]:
        with self._lock:
            now = time.monotonic()
            at, known = self._known.get((market, instance_type), (-_FRESH_S, {}))
            if now - at < _FRESH_S or now < self._silent_until.get(market, 0.0):
                return known
            try:
                known = self._listed(instance_type) if market == "on-demand" else self._history(instance_type)
            except ProviderError as error:
                log.info("AWS does not say what %s costs (%s): %s", instance_type, market, error)
                self._silent_until[market] = now + _AGAIN_S
                return known
            self._known[market, instance_type] = (now, known)
            return known

    def _listed(self, instance_type: str) -> dict[str, float]:
        wanted = {
            "instanceType": instance_type,
            "regionCode": self._clients.place.region,
            "operatingSystem": "Linux",
            "tenancy": "Shared",
            "preInstalledSw": "NA",
            "capacitystatus": "Used",
        }
        filters = [{"Type": "TERM_MATCH", "Field": key, "Value": value} for key, value in wanted.items()]
        answer = self._clients.call(
            "pricing",
            "get_products",
            patience_s=_PATIENCE_S,
            ServiceCode="AmazonEC2",
            Filters=filters,
            MaxResults=10,
        )
        price = max((of_product(text) for text in answer["PriceList"]), default=0.0)
        return {"": price} if price else {}

    def _history(self, instance_type: str) -> dict[str, float]:
        history = self._clients.pages(
            "describe_spot_price_history",
            "SpotPriceHistory",
            patience_s=_PATIENCE_S,
            InstanceTypes=[instance_type],
            ProductDescriptions=[_PRODUCT],
            StartTime=datetime.datetime.now(datetime.UTC),
        )
        return latest([*history])
