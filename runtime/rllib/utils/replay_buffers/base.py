"""What all replay buffers have."""

from __future__ import annotations

import abc
import platform
from typing import Any


class ReplayBufferInterface(abc.ABC):
    """A store of experience: `add` to it, `sample` from it."""

    @abc.abstractmethod
    def __len__(self) -> int:
        """The number of items that can be sampled."""

    @abc.abstractmethod
    def add(self, batch: Any, **kwargs: Any) -> None:
        """Store experience; the oldest gives way where there is no room."""

    @abc.abstractmethod
    def sample(self, num_items: int | None = None, **kwargs: Any) -> Any:
        """Draw items; one item may be drawn more than once."""

    @abc.abstractmethod
    def get_state(self) -> dict[str, Any]:
        """Everything that `set_state` needs to make another buffer the same."""

    @abc.abstractmethod
    def set_state(self, state: dict[str, Any]) -> None:
        """Take over what `get_state` gave."""

    def get_host(self) -> str:
        """The name of the machine that holds the buffer."""
        return platform.node()
