"""Mutual TLS for the gRPC connection, switched on by Ray's environment variables (RAY_USE_TLS and others)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from runtime._system import settings


def is_wanted() -> bool:
    """Whether RAY_USE_TLS is set."""
    return settings.USE_TLS.get()


def _files() -> tuple[bytes, bytes, bytes]:
    """The certificate, its key, and the CA's certificate.

    Raises:
        ValueError: a variable is missing.
        OSError: a file cannot be read.
    """
    named = (settings.TLS_CERTIFICATE, settings.TLS_KEY, settings.TLS_CA)
    missing = [setting.name for setting in named if not setting.get()]
    if missing:
        raise ValueError(f"RAY_USE_TLS is set, and {', '.join(missing)} must name PEM files.")
    cert, key, ca = (Path(setting.get()).read_bytes() for setting in named)
    return cert, key, ca


def channel_credentials(grpc: Any) -> Any:
    """What the program connects with."""
    cert, key, ca = _files()
    return grpc.ssl_channel_credentials(root_certificates=ca, private_key=key, certificate_chain=cert)


def server_credentials(grpc: Any) -> Any:
    """What the head listens with."""
    cert, key, ca = _files()
    return grpc.ssl_server_credentials([(key, cert)], root_certificates=ca, require_client_auth=True)
