"""A Dict space to which spaces can be added later."""

from __future__ import annotations

from typing import Any

import gymnasium as gym


class FlexDict(gym.spaces.Dict):
    """A Dict space to which spaces can be added later: `space["key"] = Box(...)`."""

    def __init__(self, spaces: dict[str, Any] | None = None, **spaces_kwargs: Any) -> None:
        """From a dict of spaces or from keywords.

        Raises:
            ValueError: both are given.
        """
        if spaces is not None and spaces_kwargs:
            raise ValueError("Give FlexDict either a dict of spaces or keywords, not both")
        super().__init__(dict(spaces or spaces_kwargs))

    def __setitem__(self, key: str, space: Any) -> None:
        if not isinstance(space, gym.Space):
            raise ValueError(f"{key!r} must be a gymnasium space, not {space!r}")
        self.spaces[key] = space
