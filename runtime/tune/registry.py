"""Names for what programs define: trainables, and creators of environments for reinforcement learning."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from runtime.tune._api.trainable import register_trainable

__all__ = ["env_creator_of", "register_env", "register_trainable"]

_env_creators: dict[str, Callable[[Any], Any]] = {}


def register_env(name: str, env_creator: Callable[[Any], Any]) -> None:
    """Gives an environment's creator a name in this process. A later one of the same name takes its place.

    Args:
        name: Such as "my-maze".
        env_creator: Gets the environment's configuration, and returns the environment.

    Raises:
        TypeError: The creator cannot be called.
    """
    if not callable(env_creator):
        raise TypeError(
            f"env_creator must be a function of the environment's configuration, not {env_creator!r}."
        )
    _env_creators[name] = env_creator


def env_creator_of(name: str) -> Callable[[Any], Any]:
    """The creator of a name.

    Raises:
        ValueError: There is none.
    """
    if name not in _env_creators:
        known = ", ".join(sorted(_env_creators)) or "none"
        raise ValueError(
            f"No environment is registered as {name!r}; registered are: {known}. Call tune.register_env."
        )
    return _env_creators[name]
