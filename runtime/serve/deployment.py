"""`Deployment` and `Application`: what is to run, before it runs."""

from __future__ import annotations

import inspect
import json
import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypedDict, Unpack

from runtime.serve._core.specs import DeploymentOptions
from runtime.serve.config import (
    AutoscalingConfig,
    AutoscalingPolicy,
    BackpressureConfig,
    RequestRouterConfig,
)

if TYPE_CHECKING:
    from runtime.serve._schema.logs import LoggingConfig

ACTOR_OPTIONS = (
    "accelerator_type",
    "memory",
    "num_cpus",
    "num_gpus",
    "resources",
    "runtime_env",
    "label_selector",
    "fallback_strategy",
)
MOST_PER_NODE = 100
NUMBERS = {
    "max_ongoing_requests": (5, 1),
    "max_queued_requests": (-1, -1),
    "max_constructor_retry_count": (20, 1),
    "max_surge_percent": (0, 0),
}
"""Whole numbers among the options: the default and the least."""
TIMES = {
    "graceful_shutdown_wait_loop_s": (2.0, False),
    "graceful_shutdown_timeout_s": (20.0, False),
    "health_check_period_s": (10.0, True),
    "health_check_timeout_s": (30.0, True),
}
"""Seconds among the options: the default, and whether they must be above zero."""

__all__ = ["Application", "Deployment"]


class DeploymentChoices(TypedDict, total=False):
    """The options of a deployment; see `serve.deployment`."""

    version: str
    num_replicas: int | str | None
    ray_actor_options: dict[str, Any] | None
    placement_group_bundles: list[dict[str, float]] | None
    placement_group_strategy: str | None
    placement_group_bundle_label_selector: list[dict[str, str]] | None
    max_replicas_per_node: int | None
    user_config: Any
    max_ongoing_requests: int
    max_queued_requests: int
    backpressure_config: Mapping[str, Any] | BackpressureConfig | None
    autoscaling_config: Mapping[str, Any] | AutoscalingConfig | None
    graceful_shutdown_wait_loop_s: float
    graceful_shutdown_timeout_s: float
    health_check_period_s: float
    health_check_timeout_s: float
    logging_config: Mapping[str, Any] | LoggingConfig | None
    request_router_config: Mapping[str, Any] | RequestRouterConfig | None
    max_constructor_retry_count: int
    gang_scheduling_config: Any
    deployment_actors: Any
    rolling_update_percentage: float
    max_surge_percent: int


class Application:
    """A deployment with the arguments of its constructor; made by `Deployment.bind`, run by `serve.run`, and bound to
    other deployments, which get a handle in its place."""

    def __init__(self, bound_deployment: Deployment) -> None:
        self._bound_deployment = bound_deployment


class Deployment:
    """A class or function to run in replicas; made by `serve.deployment`."""

    def __init__(self, code: Any, name: str, given: Mapping[str, Any], _internal: bool = False) -> None:
        if not _internal:
            raise RuntimeError(
                "A Deployment is not made by its constructor: use the decorator serve.deployment."
            )
        if not callable(code) and not isinstance(code, str):
            raise TypeError("@serve.deployment must be called on a class or function.")
        if not isinstance(name, str):
            raise TypeError(f"The name of a deployment must be a string, not {name!r}.")
        if not name or "#" in name or "\0" in name:
            raise ValueError(f"The name of a deployment must not be empty or contain '#' or NUL: {name!r}.")
        self._code = code
        self._name = name
        self._given = dict(given)
        self._init_args: tuple[Any, ...] = ()
        self._init_kwargs: dict[str, Any] = {}
        self._options = checked(self._given)

    # ------------------------------------------------------------ what it is

    @property
    def name(self) -> str:
        """Unique within its application."""
        return self._name

    @property
    def version(self) -> str | None:
        """None: versions follow from code, arguments and options."""
        return None

    @property
    def func_or_class(self) -> Any:
        """What it wraps."""
        return self._code

    @property
    def num_replicas(self) -> int:
        """How many there are to be; 1 where it scales."""
        return self._options.num_replicas or 1

    @property
    def user_config(self) -> Any:
        """What `reconfigure` gets."""
        return self._options.user_config

    @property
    def max_ongoing_requests(self) -> int:
        """Requests that a replica runs at one time."""
        return self._options.max_ongoing_requests

    @property
    def max_queued_requests(self) -> int:
        """Requests that wait in one caller at most; -1 for any number."""
        return self._options.max_queued_requests

    @property
    def backpressure_config(self) -> BackpressureConfig:
        """The answer to HTTP requests beyond that."""
        return BackpressureConfig(**self._options.backpressure)

    @property
    def ray_actor_options(self) -> dict[str, Any]:
        """Of each replica's actor."""
        return dict(self._options.ray_actor_options)

    @property
    def init_args(self) -> tuple[Any, ...]:
        """What was bound."""
        return self._init_args

    @property
    def init_kwargs(self) -> dict[str, Any]:
        """What was bound."""
        return self._init_kwargs

    @property
    def logging_config(self) -> dict[str, Any] | None:
        """Of its replicas."""
        return self._options.logging_config

    def set_logging_config(self, logging_config: dict[str, Any]) -> None:
        """Changes this deployment."""
        self._given["logging_config"] = logging_config
        self._options = checked(self._given)

    # ------------------------------------------------------------ what can be done with it

    def __call__(self) -> None:
        raise RuntimeError(
            "A deployment is not called: bind its arguments with .bind() and pass it to serve.run."
        )

    def bind(self, *args: Any, **kwargs: Any) -> Application:
        """With the arguments of its constructor. Applications among them become handles."""
        return Application(self._bound(args, kwargs))

    def options(
        self,
        func_or_class: Any = None,
        name: str | None = None,
        **given: Unpack[DeploymentChoices],
    ) -> Deployment:
        """A copy with other options; see `serve.deployment`."""
        code = self._code if func_or_class is None else func_or_class
        changed = Deployment(
            code, self._name if name is None else name, merged(self._given, given), _internal=True
        )
        changed._init_args, changed._init_kwargs = self._init_args, self._init_kwargs
        return changed

    def _bound(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Deployment:
        if inspect.isfunction(self._code) and (args or kwargs):
            raise ValueError(f"{self._name} is a function: its deployment takes no arguments in .bind().")
        bound = Deployment(self._code, self._name, self._given, _internal=True)
        bound._init_args, bound._init_kwargs = args, kwargs
        return bound

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Deployment) and (
            self._name,
            self._options,
            self._init_args,
            self._init_kwargs,
        ) == (other._name, other._options, other._init_args, other._init_kwargs)

    def __hash__(self) -> int:
        return hash(self._name)

    def __repr__(self) -> str:
        return f"Deployment(name={self._name})"


# ---------------------------------------------------------------- options


def merged(before: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """The options of one call on top of others, with the checks that belong to one call.

    Raises:
        TypeError: there is no such option.
        ValueError: they contradict each other.
    """
    unknown = sorted(set(given) - set(DeploymentChoices.__annotations__))
    if unknown:
        raise TypeError(f"A deployment has no option {', '.join(unknown)}.")
    given = dict(given)
    if "version" in given:
        raise ValueError("`version` has been removed: versions follow from code, arguments and options.")
    if given.get("max_ongoing_requests", 1) is None:
        raise ValueError("`max_ongoing_requests` must be non-null, got None.")
    replicas = given.get("num_replicas")
    if isinstance(replicas, str) and replicas != "auto":
        raise ValueError(f'num_replicas must be an integer or "auto", not {replicas!r}.')
    if replicas == "auto":
        given["num_replicas"] = None
        wished = given.get("autoscaling_config") or {}
        if isinstance(wished, AutoscalingConfig):
            wished = wished.model_dump(exclude_unset=True)
        given["autoscaling_config"] = {**AutoscalingConfig.default().model_dump(exclude_unset=True), **wished}
    elif replicas == 0:
        raise ValueError("num_replicas is expected to larger than 0")
    elif replicas is not None and given.get("autoscaling_config") is not None:
        raise ValueError("Manually setting num_replicas is not allowed when autoscaling_config is provided.")
    for name in ("gang_scheduling_config", "deployment_actors"):
        if given.pop(name, None):
            raise NotImplementedError(
                f"{name} is not supported here: create the actors in the constructor of the deployment, or reserve "
                "their resources with placement_group_bundles."
            )
    return {**before, **given}


def checked(given: Mapping[str, Any]) -> DeploymentOptions:
    """The options of a deployment.

    Raises:
        ValueError, TypeError: one is invalid.
    """
    values = dict(given)
    autoscaling = values.pop("autoscaling_config", None)
    replicas = values.pop("num_replicas", None)
    if replicas is not None:
        _whole("num_replicas", replicas, 1)
    for name, (default, least) in NUMBERS.items():
        values.setdefault(name, default)
        _whole(name, values[name], least)
    check_limits(values)
    values.pop("rolling_update_percentage", None)
    for name, (default_s, positive) in TIMES.items():
        values[name] = _seconds(name, values.get(name, default_s), positive)
    _check_actor(values)
    _check_placement(values)
    user_config = values.get("user_config")
    if user_config is not None and not isinstance(user_config, bytes):
        try:
            json.dumps(user_config)
        except (TypeError, ValueError) as error:
            raise ValueError(f"user_config must be JSON: {error}.") from None
    logging_config = values.get("logging_config")
    if logging_config is not None:
        from runtime.serve._schema.logs import LoggingConfig

        values["logging_config"] = LoggingConfig.model_validate(logging_config).model_dump()
    backpressure = values.pop("backpressure_config", None)
    if backpressure is not None:
        values["backpressure"] = BackpressureConfig.model_validate(backpressure).model_dump()
    values["router"] = _router(values.pop("request_router_config", None))
    scaling = _scaling(autoscaling)
    return DeploymentOptions(
        num_replicas=None if scaling else (1 if replicas is None else replicas), **scaling, **values
    )


def check_limits(values: Mapping[str, Any]) -> None:
    """Checks further bounds of options that are numbers already; what is missing or None is not checked.

    Raises:
        ValueError: one is invalid.
    """
    if values.get("max_queued_requests") == 0:
        raise ValueError("max_queued_requests must be -1 (no limit) or positive, not 0.")
    percent = values.get("max_surge_percent")
    if percent is not None and percent > 100:
        raise ValueError(f"max_surge_percent must be at most 100, not {percent}.")
    share = values.get("rolling_update_percentage")
    if share is not None and not 0 < share <= 1:
        raise ValueError(f"rolling_update_percentage must be above 0 and at most 1, not {share}.")
    if values.get("max_replicas_per_node") is not None and values.get("placement_group_bundles") is not None:
        raise ValueError(
            "Setting max_replicas_per_node is not allowed when placement_group_bundles is provided."
        )


def check_route_prefix(prefix: Any) -> None:
    """Checks the route prefix of an application; None: no HTTP requests reach it.

    Raises:
        ValueError: it is invalid.
    """
    if prefix is None:
        return
    if not isinstance(prefix, str) or not prefix.startswith("/"):
        raise ValueError(f"route_prefix must begin with '/' or be None, not {prefix!r}.")
    if prefix.endswith("/") and prefix != "/":
        raise ValueError(f"route_prefix must not end with '/', unless it is '/': {prefix!r}.")
    if "{" in prefix or "}" in prefix:
        raise ValueError(f"route_prefix must not have wildcards: {prefix!r}.")


def _check_actor(values: dict[str, Any]) -> None:
    options = values.get("ray_actor_options")
    options = {} if options is None else options
    if not isinstance(options, dict):
        raise TypeError(f"ray_actor_options must be a dict, not {options!r}.")
    unknown = sorted(set(options) - set(ACTOR_OPTIONS))
    if unknown:
        raise ValueError(
            f"Specifying {unknown[0]!r} in ray_actor_options is not allowed. "
            f"Allowed options: {', '.join(ACTOR_OPTIONS)}."
        )
    values["ray_actor_options"] = dict(options)
    if options.get("num_cpus") is None:
        values["ray_actor_options"]["num_cpus"] = 1


def _check_placement(values: dict[str, Any]) -> None:
    bundles: Sequence[Mapping[str, float]] | None = values.get("placement_group_bundles")
    most = values.get("max_replicas_per_node")
    for name in ("placement_group_strategy", "placement_group_bundle_label_selector"):
        if values.get(name) is not None and bundles is None:
            raise ValueError(f"If `{name}` is provided, `placement_group_bundles` must also be provided.")
    if most is not None:
        if isinstance(most, bool) or not isinstance(most, int):
            raise TypeError(f"max_replicas_per_node must be None or an integer, not {most!r}.")
        if not 1 <= most <= MOST_PER_NODE:
            raise ValueError(f"max_replicas_per_node must be from 1 to {MOST_PER_NODE}, not {most}.")
    if bundles is None:
        return
    if not bundles or not all(isinstance(bundle, Mapping) and bundle for bundle in bundles):
        raise ValueError(f"placement_group_bundles must be a list of non-empty dicts, not {bundles!r}.")
    actor = values["ray_actor_options"]
    demand = {"CPU": actor.get("num_cpus"), "GPU": actor.get("num_gpus"), **(actor.get("resources") or {})}
    for name, amount in demand.items():
        if (amount or 0) > bundles[0].get(name, 0):
            raise ValueError(
                f"The replica runs in the first bundle of placement_group_bundles, which has "
                f"{bundles[0].get(name, 0)} {name}: ray_actor_options ask for {amount}."
            )
    selectors = values.get("placement_group_bundle_label_selector")
    if selectors is not None and len(selectors) == 1:
        values["placement_group_bundle_label_selector"] = list(selectors) * len(bundles)
    elif selectors is not None and len(selectors) != len(bundles):
        raise ValueError(
            "placement_group_bundle_label_selector has one selector, or as many as there are bundles "
            f"({len(bundles)}), not {len(selectors)}."
        )


def _router(given: Any) -> bytes:
    if given is None:
        return b""
    config = RequestRouterConfig.model_validate(given)
    return b"" if config.is_default else pickled(config, config.request_router_class)


def _scaling(given: Any) -> dict[str, Any]:
    if given is None:
        return {}
    config = AutoscalingConfig.model_validate(given)
    values = config.model_dump()
    del values["policy"]
    values["aggregation_function"] = str(
        getattr(config.aggregation_function, "value", config.aggregation_function)
    )
    policy = config.policy
    assert isinstance(policy, AutoscalingPolicy)
    if policy.is_default_policy_function():
        return {"autoscaling": values}
    if policy.policy_kwargs:
        values["policy_kwargs"] = policy.policy_kwargs
    function = policy.get_policy()
    return {"autoscaling": values, "scaling_policy": pickled(function, function)}


def pickled(value: Any, code: Any) -> bytes:
    """With the code of the user's module in it, which the controller and callers may not have."""
    import sys

    from runtime import cloudpickle

    module = sys.modules.get(getattr(code, "__module__", None) or "")
    if module is None or module.__name__ == "__main__" or module.__name__.split(".")[0] in ("runtime", "ray"):
        return bytes(cloudpickle.dumps(value))
    cloudpickle.register_pickle_by_value(module)
    try:
        return bytes(cloudpickle.dumps(value))
    finally:
        cloudpickle.unregister_pickle_by_value(module)


def _whole(name: str, value: Any, least: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError(f"{name} must be an integer, not {value!r}.")
    if value < least:
        raise ValueError(f"{name} must be at least {least}, not {value}.")


def _seconds(name: str, value: Any, positive: bool) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise ValueError(f"{name} must be a number of seconds, not {value!r}.")
    if value < 0 or (positive and value == 0):
        raise ValueError(f"{name} must be {'positive' if positive else 'at least 0'}, not {value}.")
    return float(value)


def made(code: Callable[..., Any] | Any, name: str | None, given: Mapping[str, Any]) -> Deployment:
    """What the decorator makes of a class or function."""
    if not callable(code):
        raise TypeError("@serve.deployment must be called on a class or function.")
    return Deployment(code, getattr(code, "__name__", "") if name is None else name, given, _internal=True)
