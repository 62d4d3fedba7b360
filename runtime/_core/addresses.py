"""Addresses as people write them, brought to the one form in which they are compared. Pure."""

from __future__ import annotations

_LOOPBACK = "127.0.0.1"


def canonical(address: str) -> str:
    """The address with `localhost` as 127.0.0.1, where every listener of this machine is bound.

    Args:
        address: host:port, with or without a scheme.
    """
    scheme, separator, place = address.rpartition("://")
    host, colon, port = place.partition(":")
    if host.lower() == "localhost":
        host = _LOOPBACK
    return f"{scheme}{separator}{host}{colon}{port}"
