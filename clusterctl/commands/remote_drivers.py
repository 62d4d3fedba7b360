"""What a head's API says of its server for remote drivers (`ray://`)."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from clusterctl.api_client import ApiClient

_START_S = 20.0
_LOOK_S = 0.1


def listening(api: ApiClient) -> tuple[str, str, str]:
    """Its address, "" if it does not listen; its state and problem, see `clusterctl.head.remote_drivers`. Waits while
    it starts."""
    deadline = time.monotonic() + _START_S
    while True:
        address = str(api.get("/api/version").get("remote_drivers", ""))
        if address:
            return address, "listening", ""
        found = api.get("/api/cluster_status").get("remote_drivers") or {}
        state, problem = str(found.get("state", "none")), str(found.get("problem", ""))
        if state not in ("starting", "listening") or time.monotonic() > deadline:
            return "", state, problem or f"its server is {state}"
        time.sleep(_LOOK_S)
