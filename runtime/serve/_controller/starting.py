"""The options that serving is started with."""

from __future__ import annotations

from typing import Any

from runtime.serve._core.requests import Configure
from runtime.serve.config import HTTPOptions, ProxyLocation, gRPCOptions


def configure(
    location: str | ProxyLocation | None,
    http: dict[str, Any] | HTTPOptions | None,
    grpc: dict[str, Any] | gRPCOptions | None,
) -> Configure:
    """Options of the ingresses as the controller gets them.

    Raises:
        ValueError: an option is invalid.
    """
    http = HTTPOptions.model_validate(http or {})
    grpc = gRPCOptions.model_validate(grpc or {})
    chosen = ProxyLocation._normalize(location) or http.location or ProxyLocation.EveryNode
    if http.host is None:  # then there are ingresses for gRPC only
        has_grpc = bool(grpc.grpc_servicer_functions)
        chosen = (
            ProxyLocation._normalize(location) or ProxyLocation.EveryNode
            if has_grpc
            else ProxyLocation.Disabled
        )
    values = http.model_dump()
    for name in ("location", "middlewares", "num_cpus"):
        del values[name]
    return Configure(values, grpc.model_dump(), ProxyLocation(chosen).value)
