"""The keys of the control store that this process follows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from runtime._extension.events import Subscription
from runtime._extension.news import KeyChanged, News
from runtime.serve._core.published import NAMESPACE

Deliver = Callable[[bytes, bytes | None], None]
"""Takes a key and its value, or None once it is removed. On any thread."""


class Followed(Protocol):
    """Where `Targets` and `Routes` come from."""

    def follow(self, key: bytes) -> None:
        """Delivers the value of a key, if it has one, and each later one."""

    def forget(self, key: bytes) -> None:
        """Follows a key no more."""

    def close(self) -> None:
        """Delivers nothing any more."""


class StoreKeys:
    """Keys of the control store.

    Raises: see `runtime._extension.events.Subscription`.
    """

    def __init__(self, deliver: Deliver) -> None:
        self._deliver = deliver
        self._subscription = Subscription()
        self._subscription.call(self._came)

    def follow(self, key: bytes) -> None:
        """See `Followed.follow`."""
        self._subscription.watch_key(key, NAMESPACE)

    def forget(self, key: bytes) -> None:
        """See `Followed.forget`."""
        self._subscription.forget_key(key, NAMESPACE)

    def close(self) -> None:
        """See `Followed.close`."""
        self._subscription.close()

    def _came(self, news: Sequence[News]) -> None:
        for one in news:
            if isinstance(one, KeyChanged):
                self._deliver(one.key, one.value)
