"""`client(address)...connect()`: the older way to write `init("ray://address")`."""

from __future__ import annotations

from typing import Any

from runtime._api.init import init
from runtime._api.ray_context import RayContext


class ClientBuilder:
    """Collects the arguments of `init`; made by `client`."""

    def __init__(self, address: str | None) -> None:
        self.address = address
        self._namespace: str | None = None
        self._runtime_env: dict[str, Any] | None = None

    def env(self, env: dict[str, Any]) -> ClientBuilder:
        """Sets the environment of the job's workers."""
        self._runtime_env = env
        return self

    def namespace(self, namespace: str) -> ClientBuilder:
        """Sets the namespace of named actors."""
        self._namespace = namespace
        return self

    def connect(self) -> RayContext:
        """Connects. Raises as `init`."""
        address = self.address
        if address and address not in ("auto", "local") and "://" not in address:
            address = f"ray://{address}"
        return init(address, namespace=self._namespace, runtime_env=self._runtime_env)


def client(address: str | None = None) -> ClientBuilder:
    """A builder for a connection to the server for remote drivers at `address`: host:port, with or without "ray://".
    None and "local" mean what they mean to `init`.
    """
    return ClientBuilder(address)
