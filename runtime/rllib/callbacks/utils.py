"""Making callbacks from a configuration, and calling them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from runtime.rllib._core.types import Config
from runtime.rllib.callbacks.callbacks import RLlibCallback

EVENTS = tuple(name for name in vars(RLlibCallback) if name.startswith("on_"))


def callback_objects(config: Config) -> list[Any]:
    """New objects of the classes that were given to `AlgorithmConfig.callbacks`, in that order."""
    classes = config.callbacks_class
    return [each() for each in (classes if isinstance(classes, list | tuple) else [classes])]


def callback_functions(config: Config, event: str) -> list[Callable[..., Any]]:
    """The functions that were given for an event."""
    given = getattr(config, f"callbacks_{event}", None)
    if given is None:
        return []
    return list(given) if isinstance(given, list | tuple) else [given]


def is_used(config: Config, event: str) -> bool:
    """Whether something happens at an event: a class overrides its method, or there is a function for it."""
    if callback_functions(config, event):
        return True
    classes = config.callbacks_class
    listed: Iterable[Any] = classes if isinstance(classes, list | tuple) else [classes]
    plain = getattr(RLlibCallback, event)
    # What is no class (a function that makes the object) may override everything.
    return any(not isinstance(each, type) or getattr(each, event, plain) is not plain for each in listed)


def make_callback(
    callback_name: str,
    callbacks_objects: Sequence[Any] | Any = None,
    callbacks_functions: Sequence[Callable[..., Any]] | Callable[..., Any] | None = None,
    *,
    args: Sequence[Any] | None = None,
    kwargs: dict[str, Any] | None = None,
) -> None:
    """Calls the method of this name of all objects, then all functions.

    Args:
        callback_name: of the event, such as "on_episode_end".
        callbacks_objects: one object or several.
        callbacks_functions: one function or several.
        args: positional arguments.
        kwargs: keyword arguments.
    """
    args, kwargs = args or (), kwargs or {}
    if callbacks_objects is None:
        callbacks_objects = ()
    elif not isinstance(callbacks_objects, list | tuple):
        callbacks_objects = (callbacks_objects,)
    for each in callbacks_objects:
        getattr(each, callback_name)(*args, **kwargs)
    if callbacks_functions is None:
        return
    for function in [callbacks_functions] if callable(callbacks_functions) else callbacks_functions:
        function(*args, **kwargs)


class CallbackCaller:
    """The callbacks of one algorithm or runner.

    Args:
        config: an AlgorithmConfig. The objects are made now.
    """

    def __init__(self, config: Config) -> None:
        self.objects = callback_objects(config)
        self._functions = {event: callback_functions(config, event) for event in EVENTS}
        self._used = frozenset(event for event in EVENTS if is_used(config, event))

    def uses(self, event: str) -> bool:
        """Whether something happens at the event."""
        return event in self._used

    def call(self, event: str, **kwargs: Any) -> None:
        """Calls what there is for an event."""
        if event in self._used:
            make_callback(event, self.objects, self._functions[event], kwargs=kwargs)
