"""Lists of variable length."""

from __future__ import annotations

from typing import Any

import gymnasium as gym


class Repeated(gym.Space):
    """Lists of up to `max_len` values of a space."""

    def __init__(self, child_space: Any, max_len: int) -> None:
        super().__init__()
        self.child_space = child_space
        self.max_len = max_len

    def sample(self, *_: Any, **__: Any) -> list[Any]:
        """A list of 1 to `max_len` samples."""
        return [self.child_space.sample() for _ in range(self.np_random.integers(1, self.max_len + 1))]

    def contains(self, x: Any) -> bool:
        """Whether x is such a list."""
        return isinstance(x, list) and len(x) <= self.max_len and all(self.child_space.contains(v) for v in x)

    def __repr__(self) -> str:
        return f"Repeated({self.child_space}, {self.max_len})"
