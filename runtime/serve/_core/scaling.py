"""The autoscaler of a deployment, from its options."""

from __future__ import annotations

import inspect
import pickle
from typing import Any

from runtime.serve._core.autoscale import Policy, Scaler
from runtime.serve._core.specs import DeploymentSpec
from runtime.serve.config import AutoscalingConfig


def scaler_of(app: str, spec: DeploymentSpec, now: float, wall_offset_s: float) -> tuple[Scaler, str]:
    """The autoscaler, and what is wrong with its policy: without one, the number of requests decides.

    Args:
        wall_offset_s: see `Scaler`.
    """
    values: dict[str, Any] = dict(spec.options.autoscaling or {})
    arguments = values.pop("policy_kwargs", None) or {}
    policy: Policy | None = None
    error = ""
    if spec.options.scaling_policy:
        try:
            found: Any = pickle.loads(spec.options.scaling_policy)
            policy = _made(found, arguments)
        except Exception as problem:
            error = f"The autoscaling policy cannot be used, the number of requests decides: {problem!r}"
    return Scaler(app, spec.name, AutoscalingConfig(**values), policy, now, wall_offset_s), error


def _made(found: Any, arguments: dict[str, Any]) -> Any:
    """An instance of a class, or the function."""
    return found(**arguments) if inspect.isclass(found) else found
