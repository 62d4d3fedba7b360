"""Names that programs take from `ray._common.network_utils`."""

from __future__ import annotations

import socket


def find_free_port(family: socket.AddressFamily = socket.AF_INET) -> int:
    """A TCP port that nothing listens on at the moment."""
    with socket.socket(family) as probe:
        probe.bind(("", 0))
        port: int = probe.getsockname()[1]
        return port


def build_address(host: str, port: int | str) -> str:
    """`host:port`, with an IPv6 address in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def parse_address(address: str) -> tuple[str, str] | None:
    """Host and port of `host:port`; None if there is no port."""
    host, colon, port = address.rpartition(":")
    if not colon or (":" in host and not host.startswith("[")):
        return None
    return host.strip("[]"), port


def is_localhost(host: str) -> bool:
    """Whether a host is this machine's loopback."""
    return host in ("localhost", "127.0.0.1", "::1")
