"""The options of an ingress, as `serve.start(http_options=..., grpc_options=...)` gives them."""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec

Options = TypeVar("Options", bound=msgspec.Struct)


class HttpOptions(msgspec.Struct, frozen=True):
    """See Ray's `HTTPOptions`; fields that concern the controller only are ignored here.

    Attributes:
        host: None starts no HTTP server.
        port: 0 for any free one.
        root_path: the prefix that a proxy in front takes off; applications see it again.
    """

    host: str | None = "127.0.0.1"
    port: int = 8000
    root_path: str = ""
    request_timeout_s: float | None = None
    keep_alive_timeout_s: float = 90
    ssl_keyfile: str | None = None
    ssl_certfile: str | None = None
    ssl_keyfile_password: str | None = None
    ssl_ca_certs: str | None = None


class GrpcOptions(msgspec.Struct, frozen=True):
    """See Ray's `gRPCOptions`.

    Attributes:
        grpc_servicer_functions: import paths of `add_..._to_server` functions; none starts no gRPC server.
        enable_reflection: offers server reflection where grpcio-reflection is installed.
        ssl_keyfile, ssl_certfile: PEM files for TLS; without them the server speaks plain text.
        ssl_ca_certs: PEM file; clients must then show a certificate of one of these authorities.
    """

    port: int = 9000
    grpc_servicer_functions: list[str] = []
    request_timeout_s: float | None = None
    enable_reflection: bool = True
    ssl_keyfile: str | None = None
    ssl_certfile: str | None = None
    ssl_ca_certs: str | None = None


def http_options(values: dict[str, Any]) -> HttpOptions:
    """Checked.

    Raises:
        ValueError: an option has a wrong type, or only one of the files for TLS is given.
    """
    options = _convert(values, HttpOptions, "http_options")
    if bool(options.ssl_keyfile) != bool(options.ssl_certfile):
        raise ValueError("http_options: give both ssl_keyfile and ssl_certfile, or neither.")
    return options


def grpc_options(values: dict[str, Any]) -> GrpcOptions:
    """Checked.

    Raises:
        ValueError: an option has a wrong type, or only one of the files for TLS is given.
    """
    options = _convert(values, GrpcOptions, "grpc_options")
    if bool(options.ssl_keyfile) != bool(options.ssl_certfile):
        raise ValueError("grpc_options: give both ssl_keyfile and ssl_certfile, or neither.")
    return options


def limit_s(timeout_s: float | None) -> float | None:
    """A timeout as limit: None, 0 and negative ones are none."""
    return timeout_s if timeout_s is not None and timeout_s > 0 else None


def _convert(values: dict[str, Any], kind: type[Options], name: str) -> Options:
    try:
        return msgspec.convert(values, kind)
    except msgspec.ValidationError as error:
        raise ValueError(f"{name}: {error}") from error
