"""How the actor of a replica is created, and what it reserves."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from runtime._controllers.controller import Effect, Forget, ResultOf, Store
from runtime.serve._core.effects import CreateDetached
from runtime.serve._core.replica import Replica
from runtime.serve._core.specs import DeploymentOptions, DeploymentSpec

LARGE_BYTES = 100_000
"""Code and arguments above this size are stored once for all replicas."""


class StoredSpec:
    """What replicas get of a deployment's spec: a large one travels once, through the object store."""

    def __init__(self, app: str, deployment: str) -> None:
        self._place = app, deployment
        self._version = ""  # of the spec that is stored

    def store(self, spec: DeploymentSpec) -> list[Effect]:
        """Stores it, if it is large and not there yet, in the place of the one before."""
        if len(spec.code) + len(spec.init) <= LARGE_BYTES or self._version == spec.version:
            return []
        effects: list[Effect] = [Forget(("spec", *self._place, self._version))] if self._version else []
        self._version = spec.version
        return [*effects, Store(("spec", *self._place, self._version), spec)]

    def argument(self, spec: DeploymentSpec) -> Any:
        """The spec, or what stands for it."""
        return ResultOf(("spec", *self._place, self._version)) if self._version == spec.version else spec


def create(
    replica: Replica,
    spec: DeploymentSpec,
    argument: Any,
    env: Mapping[str, Any],
    cls: str,
    session: Mapping[str, Any],
    node: str,
) -> CreateDetached:
    """The effect that creates it.

    Args:
        argument: the spec, or what stands for it.
        env: the application's runtime_env.
        node: the only one that it may run on; "" for any.
    """
    options, record = spec.options, replica.record
    return CreateDetached(
        replica.key,
        record.actor_name,
        cls,
        [record.id, record.token, record.app, argument, record.rank, dict(session)],
        actor_options(options, env),
        node,
        options.placement_group_bundles or (),
        options.placement_group_strategy or "PACK",
        options.placement_group_bundle_label_selector or (),
    )


def actor_options(options: DeploymentOptions, env: Mapping[str, Any]) -> dict[str, Any]:
    """Of its actor, with the runtime_env of the application below its own."""
    chosen = dict(options.ray_actor_options)
    own = dict(chosen.get("runtime_env") or {})
    merged = {**env, **own}
    if "env_vars" in env and "env_vars" in own:
        merged["env_vars"] = {**env["env_vars"], **own["env_vars"]}
    return {"num_cpus": 1, **chosen, "runtime_env": merged}


def demand(options: DeploymentOptions) -> dict[str, float]:
    """What its actor takes of a node."""
    given = options.ray_actor_options
    wanted = {
        "CPU": given.get("num_cpus", 1),
        "GPU": given.get("num_gpus"),
        "memory": given.get("memory"),
        **(given.get("resources") or {}),
    }
    return {name: float(amount) for name, amount in wanted.items() if amount}


def reserved(options: DeploymentOptions) -> dict[str, float]:
    """What a replica takes, with its placement group."""
    if not options.placement_group_bundles:
        return demand(options)
    total: dict[str, float] = {}
    for bundle in options.placement_group_bundles:
        for name, amount in bundle.items():
            total[name] = total.get(name, 0.0) + amount
    return total
