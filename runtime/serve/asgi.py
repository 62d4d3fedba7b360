"""`@serve.ingress`: a deployment that answers HTTP requests by an ASGI application."""

from __future__ import annotations

import contextlib
import copyreg
import inspect
import sys
import threading
from collections.abc import Callable
from typing import Any

_ATTRIBUTE = "__serve_asgi__"
_LOCK = type(threading.Lock())
BUILD_METHOD = "__serve_build_asgi_app__"
METHOD_ATTRIBUTE = "__serve_method__"
"""Of endpoints of routes that are methods of a class with `@serve.ingress`."""


class Source:
    """What makes the application of a deployment's class.

    Attributes:
        app: the application, or the function that builds it; None if the class's `__serve_build_asgi_app__` does.
        owners: names of the class and its bases. A class that is pickled by value comes back without its qualified
            name.
    """

    def __init__(self, app: Any, cls: type) -> None:
        self.app = app
        self.owners = frozenset(_name_of(base) for base in cls.__mro__ if base is not object)

    def __getstate__(self) -> dict[str, Any]:
        _mark_methods(self.app, self.owners)
        _make_picklable(self.app)  # routers may have been included since the class was decorated
        return vars(self)

    @property
    def builds(self) -> bool:
        """Whether `app` is to be called, without arguments, to get the application."""
        return inspect.isfunction(self.app) and not takes_scope(self.app)


class ASGIIngressDeployment:
    """The class of a deployment that consists of an ASGI application only.

    Attributes:
        args, kwargs: what it was bound to.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.args = args
        self.kwargs = kwargs


def ingress(app: Any = None) -> Callable[..., type]:
    """Makes a class of a deployment answer HTTP requests and WebSockets by an ASGI application.

    The decorator goes below `@serve.deployment`. Methods of the class may be routes of a FastAPI application: they get
    the instance as `self`. `serve.ingress(app)()` is a class that consists of the application only.

    Args:
        app: a FastAPI, Starlette or other ASGI application, or a function without parameters that builds one: it is
            called in each replica. None if the class has a method `__serve_build_asgi_app__` that returns it; it is
            called after the constructor.

    Raises:
        ValueError: what is decorated is not a class, or has a method `__call__`, or `app` is missing.
    """

    def decorate(cls: type | None = None) -> type:
        if cls is None:
            cls = type("ASGIIngressDeployment", (ASGIIngressDeployment,), {"__module__": __name__})
        if not inspect.isclass(cls):
            raise ValueError("@serve.ingress must be used with a class.")
        if any("__call__" in vars(base) for base in cls.__mro__):
            raise ValueError(
                f"Classes passed to @serve.ingress may not have a `__call__` method: the ASGI application answers all "
                f"requests to {cls.__name__}."
            )
        if app is None and not hasattr(cls, BUILD_METHOD):
            raise ValueError(
                f"serve.ingress() without an application requires {cls.__name__} to define `{BUILD_METHOD}`."
            )
        source = Source(app, cls)
        _mark_methods(app, source.owners)
        _make_picklable(app)
        setattr(cls, _ATTRIBUTE, source)
        return cls

    return decorate


def source_of(cls: Any) -> Source | None:
    """What makes the application of a class; None of one without `@serve.ingress`."""
    source = getattr(cls, _ATTRIBUTE, None) if inspect.isclass(cls) else None
    return source if isinstance(source, Source) else None


def takes_scope(app: Any) -> bool:
    """Whether a function is an ASGI application itself: a coroutine function with three parameters."""
    return inspect.iscoroutinefunction(app) and len(inspect.signature(app).parameters) == 3


def routes_of(app: Any) -> list[tuple[list[Any], int, Any]]:
    """All routes of an application or router with an endpoint, those of included routers too: the list that holds a
    route, its index there, the route."""
    return [found for found in _nodes_of(app) if hasattr(found[2], "endpoint")]


def _nodes_of(app: Any) -> list[tuple[list[Any], int, Any]]:
    found: list[tuple[list[Any], int, Any]] = []
    seen: set[int] = set()

    def walk(node: Any) -> None:
        routes = getattr(node, "routes", None)
        if not isinstance(routes, list) or id(routes) in seen:
            return
        seen.add(id(routes))
        for index, route in enumerate(routes):
            found.append((routes, index, route))
            walk(getattr(route, "original_router", None) or route)  # FastAPI >= 0.137 keeps included routers

    walk(app)
    return found


def owner_of(endpoint: Any) -> str:
    """The name of the class in which an endpoint was defined, if it is a method. Names tell, as of methods with the
    same name a class keeps only the last one, and all are routes."""
    function = getattr(endpoint, "__func__", endpoint)
    return f"{getattr(function, '__module__', '')}.{getattr(function, '__qualname__', '').rpartition('.')[0]}"


def _name_of(cls: type) -> str:
    return f"{cls.__module__}.{cls.__qualname__}"


def _mark_methods(app: Any, owners: frozenset[str]) -> None:
    for _, _, route in routes_of(app):
        if owner_of(route.endpoint) in owners:
            setattr(route.endpoint, METHOD_ATTRIBUTE, True)
            _read_annotations(route.endpoint)


def _read_annotations(method: Any) -> None:
    """Keeps the signature of a route with its annotations evaluated: where they are strings, what they name does not
    travel with the method to the replica, where its route is made anew."""
    with contextlib.suppress(NameError, AttributeError, TypeError):
        method.__signature__ = inspect.signature(method, eval_str=True)


def _make_picklable(app: Any) -> None:
    """Registers how parts of applications are pickled that cannot be as they are.

    `State` of Starlette, which every application has one of, asks itself for attributes before it is unpickled, for
    ever: it is rebuilt from its items. Included routers of FastAPI have a lock: they get a new one.
    """
    datastructures = sys.modules.get("starlette.datastructures")
    if datastructures is not None:
        copyreg.pickle(datastructures.State, _reduce_state)
    for _, _, route in _nodes_of(app):
        if any(isinstance(value, _LOCK) for value in getattr(route, "__dict__", {}).values()):
            copyreg.pickle(type(route), _reduce_with_locks)


def _reduce_with_locks(value: Any) -> tuple[Any, ...]:
    locks = [name for name, part in vars(value).items() if isinstance(part, _LOCK)]
    state = {name: part for name, part in vars(value).items() if name not in locks}
    return _with_locks, (type(value), locks), state


def _with_locks(cls: type, locks: list[str]) -> Any:
    value: Any = object.__new__(cls)
    for name in locks:
        setattr(value, name, threading.Lock())
    return value


def _reduce_state(state: Any) -> tuple[Any, ...]:
    return type(state), ({key: state[key] for key in state},)
