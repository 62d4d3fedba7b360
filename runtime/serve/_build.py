"""From an application, whose arguments may have other applications anywhere, to what the controller deploys."""

from __future__ import annotations

import hashlib
import io
import logging
import sys
from collections.abc import Callable, Mapping
from typing import Any

import msgspec
from cloudpickle.cloudpickle import _DYNAMIC_CLASS_TRACKER_BY_CLASS

from runtime import cloudpickle
from runtime.serve._build_sources import sources
from runtime.serve._core.specs import ApplicationSpec, DeploymentSpec
from runtime.serve.deployment import Application, Deployment

log = logging.getLogger(__name__)


class Built(msgspec.Struct, frozen=True):
    """`handles`: by the name of their deployment. `deployments`: as they were bound, with their final names."""

    spec: ApplicationSpec
    handles: dict[str, Any]
    deployments: dict[str, Deployment]


def build(
    target: Application,
    name: str,
    route_prefix: str | None,
    make_handle: Callable[[str, str], Any],
    *,
    runtime_env: Mapping[str, Any] | None = None,
    logging_config: Mapping[str, Any] | None = None,
    external_scaler: bool = False,
    source: str = "imperative",
    config: dict[str, Any] | None = None,
    overrides: Mapping[str, Mapping[str, Any]] | None = None,
) -> Built:
    """An application with all deployments that it needs. Each bound deployment in the arguments of another one becomes
    a handle; a second one of a name gets the suffix _1, and so on.

    Args:
        make_handle: of a deployment and an application, by their names.
        runtime_env: of the program; deployments add theirs.
        logging_config: of deployments without one.
        overrides: options by the names of deployments, on top of those of the code.

    Raises:
        TypeError: code or arguments cannot be pickled.
        ValueError: there is no deployment that options are for.
    """
    env = dict(runtime_env or {})
    builder = _Builder(name, make_handle, dict(logging_config) if logging_config else None, env)
    builder.overrides = dict(overrides or {})
    builder.declared = source == "declarative"
    ingress = builder.add(target)
    unknown = sorted(set(builder.overrides) - set(builder.handles))
    if unknown:
        raise ValueError(
            f"The application {name!r} has no deployment {', '.join(unknown)}; it has {', '.join(builder.handles)}."
        )
    spec = ApplicationSpec(
        name=name,
        route_prefix=route_prefix,
        ingress=ingress,
        deployments=builder.specs,
        runtime_env=env,
        source=source,
        config=config,
        external_scaler=external_scaler,
    )
    return Built(spec, builder.handles, builder.deployments)


class _Builder:
    """Adds deployments, those that others need first."""

    def __init__(
        self,
        app: str,
        make_handle: Callable[[str, str], Any],
        logging_config: dict[str, Any] | None,
        env: dict[str, Any],
    ) -> None:
        self.specs: list[DeploymentSpec] = []
        self.handles: dict[str, Any] = {}
        self.deployments: dict[str, Deployment] = {}
        self.overrides: dict[str, Mapping[str, Any]] = {}
        self.declared = False
        self._app = app
        self._make_handle = make_handle
        self._logging_config = logging_config
        self._env = env
        self._names: dict[int, str] = {}  # of applications, by their ids
        self._kept: list[Application] = []  # so that no id is used again

    def add(self, application: Application) -> str:
        """The name of its deployment."""
        known = self._names.get(id(application))
        if known is not None:
            return known
        deployment = application._bound_deployment
        buffer = io.BytesIO()
        what = (deployment.init_args, deployment.init_kwargs)
        try:
            _Pickler(buffer, self._handle_of).dump(what)
            code = bytes(cloudpickle.dumps(deployment.func_or_class))
        except Exception as error:
            raise TypeError(
                f"The code or the arguments of deployment {deployment.name!r} cannot be pickled: {error}"
            ) from error
        name = self._unique(deployment.name)
        self._names[id(application)] = name
        self._kept.append(application)
        if name in self.overrides:
            deployment = deployment.options(**self.overrides[name])
        if self._logging_config is not None and deployment.logging_config is None:
            deployment = deployment.options(logging_config=self._logging_config)
        self.specs.append(_spec(name, deployment, code, buffer.getvalue(), self._env, self.declared))
        self.handles[name] = self._make_handle(name, self._app)
        self.deployments[name] = deployment.options(name=name)
        return name

    def _handle_of(self, application: Application) -> Any:
        return self.handles[self.add(application)]

    def _unique(self, name: str) -> str:
        found, number = name, 0
        while found in self.handles:
            number += 1
            found = f"{name}_{number}"
        if number:
            log.warning("There are several deployments %r: one is called %r.", name, found)
        return found


class _Pickler(cloudpickle.Pickler):  # type: ignore[misc]
    """Pickles a handle in the place of each application."""

    def __init__(self, file: io.BytesIO, handle_of: Callable[[Application], Any]) -> None:
        super().__init__(file)
        self._handle_of = handle_of

    def reducer_override(self, value: Any) -> Any:
        if isinstance(value, Application):
            return _itself, (self._handle_of(value),)
        return super().reducer_override(value)


def _itself(value: Any) -> Any:
    """A pickle can have one value in the place of another only as what a function returns."""
    return value


def _spec(
    name: str, deployment: Deployment, code: bytes, init: bytes, env: Mapping[str, Any], declared: bool
) -> DeploymentSpec:
    options = deployment._options
    fixed = (
        options.ray_actor_options,
        options.placement_group_bundles,
        options.placement_group_strategy,
        options.placement_group_bundle_label_selector,
        options.max_replicas_per_node,
        env,
    )
    wrapped = deployment.func_or_class
    parts = [_same_everywhere(init), repr(fixed).encode(), _identity(wrapped, code)]
    if not declared:  # built in the program that may have changed the class
        parts.append(_same_everywhere(code))
    version = hashlib.sha256(b"\0".join(parts)).hexdigest()[:16]
    return DeploymentSpec(
        name=name,
        code=code,
        init=init,
        version=version,
        options=options,
        code_name=f"{getattr(wrapped, '__module__', '')}:{getattr(wrapped, '__qualname__', name)}",
    )


def _identity(wrapped: Any, code: bytes) -> bytes:
    """What changes with the code, and is the same in each process that builds it.

    A pickle is not: it has sets in the order of this process, and it names what modules have. So of a class or function
    at the top level of a module, the sources of the module and of those that it uses are taken.
    """
    module = sys.modules.get(getattr(wrapped, "__module__", None) or "")
    name = getattr(wrapped, "__qualname__", "")
    found = sources(module) if module is not None else {}
    texts = b"\0".join(each.encode() + b"\0" + text for each, text in sorted(found.items()))
    if module is not None and module.__name__ in found and name and "<locals>" not in name:
        return texts + b"\0" + name.encode()
    return texts + b"\0" + _same_everywhere(code)


def _same_everywhere(pickled: bytes) -> bytes:
    """Without the random ids that cloudpickle gives to classes in each process."""
    for tracker in list(_DYNAMIC_CLASS_TRACKER_BY_CLASS.values()):
        pickled = pickled.replace(tracker.encode(), b"")
    return pickled
