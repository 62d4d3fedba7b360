"""A head's HTTP API: where the cluster says its address, and how requests carry the cluster's secret. Pure."""

from __future__ import annotations

import hmac
from collections.abc import Iterable, Mapping

NAMESPACE, KEY = "head", b"api_url"
"""Where the head writes the address of its API in the cluster's key-value store."""
_NAMES = ("Authorization", "X-Ray-Authorization")
"""Two, so that a user's own `Authorization`, for a proxy on the way, does not take the place of the secret."""
_NAMES_RECEIVED = tuple(name.lower().encode() for name in _NAMES)


def with_secret(secret: str, headers: Mapping[str, str]) -> dict[str, str]:
    """The headers of a request: the user's, and the secret under each name that the user left free.

    Args:
        secret: "": there is none to send.
    """
    taken = {name.lower() for name in headers}
    ours = {name: f"Bearer {secret}" for name in _NAMES if secret and name.lower() not in taken}
    return {**ours, **headers}


def has_secret(secret: str, headers: Iterable[tuple[bytes, bytes]]) -> bool:
    """Whether a request's headers carry the secret. Compares in constant time.

    Args:
        headers: names in lower case, and values.
    """
    expected = f"Bearer {secret}".encode()
    given = [value for name, value in headers if name in _NAMES_RECEIVED]
    return any(hmac.compare_digest(value, expected) for value in given)
