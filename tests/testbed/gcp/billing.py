"""The pretended catalogue of Cloud Billing. Its entries have the form of the real ones."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import Any

Json = dict[str, Any]
PATH = "/v1/services/6F81-5844-456A/skus"
_MOST_PER_PAGE = 4


def sku(
    description: str,
    nanos: int,
    usage: str = "OnDemand",
    unit: str = "h",
    regions: Sequence[str] = ("us-central1", "us-east1", "us-west1"),
) -> Json:
    """An entry."""
    rate = {"startUsageAmount": 0, "unitPrice": {"currencyCode": "USD", "units": "0", "nanos": nanos}}
    return {
        "description": description,
        "category": {
            "serviceDisplayName": "Compute Engine",
            "resourceFamily": "Compute",
            "resourceGroup": "CPU",
            "usageType": usage,
        },
        "serviceRegions": [*regions],
        "pricingInfo": [
            {
                "summary": "",
                "pricingExpression": {"usageUnit": unit, "displayQuantity": 1, "tieredRates": [rate]},
                "currencyConversionRate": 1,
            }
        ],
        "serviceProviderName": "Google",
    }


class Billing:
    """The catalogue.

    Attributes:
        skus: its entries.
        status: another one than 200 refuses whoever asks.
        may_answer: unset, it is silent.
        asked: how often it was.
    """

    def __init__(self) -> None:
        self.skus: list[Json] = []
        self.status = 200
        self.may_answer = threading.Event()
        self.may_answer.set()
        self.asked = 0

    def call(self, query: Mapping[str, str]) -> tuple[int, Json]:
        """A page."""
        self.asked += 1
        self.may_answer.wait()
        if self.status != 200:
            message = "Cloud Billing API has not been used in project a-project before or it is disabled."
            return self.status, {
                "error": {"code": self.status, "message": message, "status": "PERMISSION_DENIED"}
            }
        start = int(query.get("pageToken", 0))
        end = start + min(_MOST_PER_PAGE, int(query["pageSize"]))
        more = str(end) if end < len(self.skus) else ""
        return 200, {"skus": self.skus[start:end], "nextPageToken": more}
