"""Carries out what the controller of serving decides: detached actors, placement groups, and the control store."""

from __future__ import annotations

from typing import Any

import runtime
from runtime._controllers.cluster import ClusterEngine
from runtime._controllers.controller import ActorDied, Effect
from runtime._extension import workers
from runtime.experimental import internal_kv
from runtime.serve._core.effects import Adopt, CreateDetached, Put, RemoveGroup
from runtime.serve._core.published import NAMESPACE
from runtime.serve._core.recovered import Recovered
from runtime.serve.config import imported
from runtime.util.placement_group import get_placement_group, placement_group, remove_placement_group
from runtime.util.scheduling_strategies import (
    NodeAffinitySchedulingStrategy,
    PlacementGroupSchedulingStrategy,
)

CALLS = 8
"""Concurrent calls from the controller to an actor: a slow one must not delay health checks."""


class ServeEngine(ClusterEngine):
    """See `ClusterEngine`.

    Args:
        preload: modules that workers have imported before they are needed.
    """

    def __init__(self, preload: tuple[str, ...]) -> None:
        super().__init__()
        self._preload = preload
        self._classes: dict[str, Any] = {}

    def carry_out(self, effect: Effect) -> None:
        match effect:
            case Put(key, None):
                internal_kv._internal_kv_del(key, namespace=NAMESPACE)
            case Put(key, bytes(value)):
                internal_kv._internal_kv_put(key, value, namespace=NAMESPACE)
            case Adopt(key, name):
                try:
                    handle = runtime.get_actor(name, NAMESPACE)
                except ValueError as error:
                    self._failed.append(ActorDied(key, str(error)))
                else:
                    self._follow(key, handle)
            case CreateDetached():
                try:
                    handle = self._detached(effect)
                except Exception as error:
                    self._failed.append(ActorDied(effect.key, f"it could not be created: {error}"))
                else:
                    self._follow(effect.key, handle)
            case RemoveGroup(name):
                try:
                    remove_placement_group(get_placement_group(name))
                except ValueError:
                    pass  # it was removed before, or never created
            case _:
                super().carry_out(effect)

    def _detached(self, effect: CreateDetached) -> Any:
        options: dict[str, Any] = {
            "max_concurrency": CALLS,
            **effect.options,
            "name": effect.name,
            "namespace": NAMESPACE,
            "lifetime": "detached",
            "runtime_env": workers.preloaded(
                *self._preload, runtime_env=effect.options.get("runtime_env") or {}
            ),
        }
        if effect.bundles:
            group = placement_group(
                [dict(bundle) for bundle in effect.bundles],
                effect.strategy,
                effect.name,
                "detached",
                bundle_label_selector=[dict(selector) for selector in effect.selectors] or None,
            )
            options["scheduling_strategy"] = PlacementGroupSchedulingStrategy(group, 0, True)
        elif effect.node:
            options["scheduling_strategy"] = NodeAffinitySchedulingStrategy(effect.node, soft=False)
        cls = self._classes.get(effect.cls)
        if cls is None:
            cls = self._classes[effect.cls] = runtime.remote(imported(effect.cls))
        return cls.options(**options).remote(*self._arguments(effect.args))


def recovered() -> Recovered:
    """What the control store has from before the controller was restarted."""
    keys = internal_kv._internal_kv_list(b"", namespace=NAMESPACE)
    values = {key: internal_kv._internal_kv_get(key, namespace=NAMESPACE) for key in keys}
    return Recovered({key: value for key, value in values.items() if value is not None})


def forget_everything() -> None:
    """Removes what the control store has of serving."""
    internal_kv._internal_kv_del(b"", del_by_prefix=True, namespace=NAMESPACE)
