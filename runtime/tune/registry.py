"""Names for what programs define: trainables, and creators of environments for reinforcement learning."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

from runtime import cloudpickle
from runtime.experimental import internal_kv
from runtime.tune._api.trainable import register_trainable, registered_trainable

__all__ = ["env_creator_of", "get_trainable_cls", "publish_envs", "register_env", "register_trainable"]

_NAMESPACE = "tune.registry.envs"

_env_creators: dict[str, Callable[[Any], Any]] = {}
_unpublished: set[str] = set()


def register_env(name: str, env_creator: Callable[[Any], Any]) -> None:
    """Gives an environment's creator a name, which all processes of the job's cluster know. A later creator of the same
    name takes its place.

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
    _unpublished.add(name)
    publish_envs()


def publish_envs() -> None:
    """Tells the cluster of the environments that were registered before this process was connected to it."""
    if not internal_kv._internal_kv_initialized():
        return
    for name in sorted(_unpublished):
        internal_kv._internal_kv_put(name, cloudpickle.dumps(_env_creators[name]), namespace=_NAMESPACE)
        _unpublished.discard(name)


def env_creator_of(name: str) -> Callable[[Any], Any]:
    """The creator of a name: registered in this process, otherwise in another one of the cluster.

    Raises:
        ValueError: There is none.
    """
    if name not in _env_creators and internal_kv._internal_kv_initialized():
        stored = internal_kv._internal_kv_get(name, namespace=_NAMESPACE)
        if stored is not None:
            _env_creators[name] = pickle.loads(stored)
    if name not in _env_creators:
        known = ", ".join(sorted(_env_creators)) or "none"
        raise ValueError(
            f"No environment is registered as {name!r}; registered are: {known}. Call tune.register_env."
        )
    return _env_creators[name]


def get_trainable_cls(trainable_name: str) -> Any:
    """The function or class that is registered under a name, or the algorithm of `runtime.rllib` with this name.

    Raises:
        ValueError: There is none.
    """
    return registered_trainable(trainable_name)
