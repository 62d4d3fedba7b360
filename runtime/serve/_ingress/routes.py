"""Which application a path, or a name in gRPC metadata, belongs to."""

from __future__ import annotations

from collections.abc import Iterable

from runtime.serve._core.published import Route, Routes

NO_ROUTES = "Route table is not populated yet."


class RouteTable:
    """The routes as last published. Belongs to the event loop of the ingress."""

    def __init__(self) -> None:
        self.was_filled = False
        """Whether any route was ever published: before that the ingress is not ready."""
        self._epoch = -1
        self._by_length: list[tuple[str, str, Route]] = []
        self._apps: dict[str, str] = {}

    def update(self, routes: Routes) -> bool:
        """Replaces all routes unless `routes` is older than the present ones; returns whether it did."""
        if routes.epoch < self._epoch:
            return False
        self._epoch = routes.epoch
        self.was_filled = self.was_filled or bool(routes.routes or routes.apps)
        longest_first = sorted(routes.routes, key=lambda route: len(route.prefix), reverse=True)
        self._by_length = [
            (route.prefix, route.prefix if route.prefix.endswith("/") else route.prefix + "/", route)
            for route in longest_first
        ]
        self._apps = {**{route.app: route.deployment for route in routes.routes}, **routes.apps}
        return True

    def match(self, path: str) -> Route | None:
        """The route with the longest prefix of whole path segments: /a is one of /a and /a/b, not of /ab."""
        for prefix, folder, route in self._by_length:
            if path.startswith(folder) or path == prefix:
                return route
        return None

    def application(self, name: str) -> tuple[str, str] | None:
        """The application of that name and its ingress deployment. The only one there is needs no name."""
        if len(self._apps) == 1:
            return next(iter(self._apps.items()))
        deployment = self._apps.get(name)
        return None if deployment is None else (name, deployment)

    @property
    def applications(self) -> Iterable[str]:
        """The names of all applications."""
        return self._apps.keys()

    def shown(self) -> dict[str, str]:
        """Prefix -> application, as `/-/routes` shows it."""
        return {prefix: route.app for prefix, _folder, route in reversed(self._by_length)}
