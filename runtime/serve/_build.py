"""From an application, whose arguments may have other applications anywhere, to what the controller deploys."""

from __future__ import annotations

import contextlib
import hashlib
import io
import logging
import re
import sys
import typing
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import msgspec

from runtime import cloudpickle
from runtime.serve._build_sources import sources
from runtime.serve._core.specs import ApplicationSpec, DeploymentSpec
from runtime.serve.deployment import Application, Deployment

log = logging.getLogger(__name__)
_ID = re.compile("[0-9a-f]{32}")


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
        try:
            init = _pickled((deployment.init_args, deployment.init_kwargs), self._handle_of)
            code = self._code_of(deployment.func_or_class)
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
        self.specs.append(_spec(name, deployment, code, init, self._env, self.declared))
        self.handles[name] = self._make_handle(name, self._app)
        self.deployments[name] = deployment.options(name=name)
        return name

    def _code_of(self, func_or_class: Any) -> _Pickled:
        data = bytes(cloudpickle.dumps(func_or_class))
        pickler = _Pickler(io.BytesIO(), self._handle_of)
        with contextlib.suppress(
            Exception
        ):  # serializers of the user's may be needed; ids that are missed do no harm
            pickler.dump(func_or_class)
        return _Pickled(data, frozenset(pickler.ids))

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


class _Pickled(NamedTuple):
    """`ids`: the random ones in it that stand for classes."""

    data: bytes
    ids: frozenset[str]

    @property
    def same_everywhere(self) -> bytes:
        """Without the ids, which are others in each process."""
        data = self.data
        for each in self.ids:
            data = data.replace(each.encode(), b"")
        return data


def _pickled(value: Any, handle_of: Callable[[Application], Any]) -> _Pickled:
    buffer = io.BytesIO()
    pickler = _Pickler(buffer, handle_of)
    pickler.dump(value)
    return _Pickled(buffer.getvalue(), frozenset(pickler.ids))


class _Pickler(cloudpickle.Pickler):  # type: ignore[misc]
    """Pickles a handle in the place of each application.

    Attributes:
        ids: cloudpickle pickles a class or type variable by value as a call, and gives it a random id, which is among
            the arguments.
    """

    def __init__(self, file: io.BytesIO, handle_of: Callable[[Application], Any]) -> None:
        super().__init__(file)
        self.ids: set[str] = set()
        self._handle_of = handle_of

    def reducer_override(self, value: Any) -> Any:
        if isinstance(value, Application):
            return _itself, (self._handle_of(value),)
        reduced = super().reducer_override(value)
        if reduced is NotImplemented and isinstance(value, typing.TypeVar):
            reduced = self.dispatch_table[typing.TypeVar](value)
        if isinstance(value, type | typing.TypeVar) and isinstance(reduced, tuple):
            self.ids.update(each for each in reduced[1] if isinstance(each, str) and _ID.fullmatch(each))
        return reduced


def _itself(value: Any) -> Any:
    """A pickle can have one value in the place of another only as what a function returns."""
    return value


def _spec(
    name: str, deployment: Deployment, code: _Pickled, init: _Pickled, env: Mapping[str, Any], declared: bool
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
    parts = [init.same_everywhere, repr(fixed).encode(), _identity(wrapped, code)]
    if not declared:  # built in the program that may have changed the class
        parts.append(code.same_everywhere)
    version = hashlib.sha256(b"\0".join(parts)).hexdigest()[:16]
    return DeploymentSpec(
        name=name,
        code=code.data,
        init=init.data,
        version=version,
        options=options,
        code_name=f"{getattr(wrapped, '__module__', '')}:{getattr(wrapped, '__qualname__', name)}",
    )


def _identity(wrapped: Any, code: _Pickled) -> bytes:
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
    return texts + b"\0" + code.same_everywhere
