"""Actors: classes that live in a process of their own, and the handles that call them."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any, NoReturn

import msgspec

from runtime import exceptions
from runtime._api import options as _options
from runtime._api import scheduling, tensor_transport
from runtime._api.actor_handle import ActorHandle as ActorHandle
from runtime._api.actor_handle import ActorMethod as ActorMethod
from runtime._api.actor_handle import handle_of, new_handle
from runtime._api.actor_methods import (
    ActorClassMetadata,
    ActorShape,
    MethodOptions,
    check_groups,
    groups_of,
    method_table,
)
from runtime._api.actor_methods import method as method
from runtime._api.signature import ArgumentCheck, parameters_of
from runtime._core import ids
from runtime._extension.workers import SPARE
from runtime._owner.context import ActorExit
from runtime._owner.functions import Function, is_async
from runtime._process.core_worker import Core, current, current_or_none
from runtime._wire.messages.base import ErrorKind, ErrorReply
from runtime._wire.messages.control import ActorSpec, GetNamedActor
from runtime._wire.messages.worker import ActorSetup

ASYNC_MAX_CONCURRENCY = 1000


class ActorClassInheritanceException(TypeError):
    """A class inherits from an actor class."""


def exit_actor() -> NoReturn:
    """Ends the current actor. It is not restarted, and pending calls fail with ActorDiedError. Concurrent calls finish
    first; `atexit` handlers run.

    Raises:
        TypeError: the caller is not an actor.
    """
    core = current_or_none()
    if core is None or core.executor is None or core.executor.setup is None:
        raise TypeError(
            "exit_actor() is called on a non-actor worker or in a driver: call it in a method of the actor."
        )
    core.executor.leave("exit_actor() is called.")
    if core.executor.is_async:
        raise exceptions.AsyncioActorExit
    raise ActorExit(0)


class ActorClass:
    """A class whose instances are actors: `Class.remote(...)` starts one and returns its handle."""

    def __init__(self, cls: type, options: Mapping[str, Any]) -> None:
        _options.validate(options, _options.ACTOR)
        if inspect.isabstract(cls):
            missing = ", ".join(sorted(getattr(cls, "__abstractmethods__", ())))
            raise TypeError(f"Can't instantiate abstract class {cls.__name__}: it lacks {missing}.")
        self._class = cls
        self._defaults = dict(options)
        self._name = cls.__name__
        self._methods: dict[str, MethodOptions] | None = None
        self._prepared: tuple[Core, Function] | None = None
        self._check = ArgumentCheck(parameters_of(cls))
        self.__doc__ = cls.__doc__
        self.__name__ = cls.__name__
        self.__qualname__ = cls.__qualname__
        self.__module__ = cls.__module__

    def __call__(self, *_args: Any, **_kwargs: Any) -> NoReturn:
        raise TypeError(
            f"Actors cannot be instantiated directly: in place of {self._name}() write {self._name}.remote()."
        )

    def __getattr__(self, name: str) -> Any:
        """Class attributes, static and class methods, like those of the class itself."""
        if name.startswith("__") or "_class" not in self.__dict__ or not hasattr(self._class, name):
            raise AttributeError(
                f"'ActorClass({self.__dict__.get('_name')})' object has no attribute '{name}'"
            )
        return getattr(self._class, name)

    def __dir__(self) -> list[str]:
        """Its own names and those of the class, for completion in notebooks."""
        return sorted({*super().__dir__(), *dir(self._class)})

    @property
    def __ray_actor_class__(self) -> type:
        """The class that was made remote."""
        return self._class

    @property
    def __ray_metadata__(self) -> ActorClassMetadata:
        """See `ActorClassMetadata`."""
        given = self._defaults.get
        return ActorClassMetadata(
            self._name,
            self._class,
            given("num_cpus"),
            given("num_gpus"),
            given("resources") or {},
            given("max_restarts") or 0,
            given("max_task_retries") or 0,
            given("runtime_env"),
        )

    def __mro_entries__(self, _bases: Any) -> NoReturn:
        raise ActorClassInheritanceException(
            f"{self._name} is an actor class. Inheriting from actor classes is not currently supported: "
            "inherit from the plain class, and make the subclass remote."
        )

    def __repr__(self) -> str:
        return f"ActorClass({self._name})"

    def options(self, **options: Any) -> _BoundActorClass:
        """The same class with other options for the actors that it starts. None means the default
        below, whatever the decorator says.

        All options of actors but `concurrency_groups`, which belongs to the decorator:

        Args:
            num_cpus (float, default: 1 for the constructor, then 0): CPUs that the actor takes for its life, if
                given. One that asks for resources other than memory takes 1 CPU for its life, too.
            num_gpus (float, default 0): GPUs; from 1 up whole ones. Less than 1 shares a device with others.
            memory (float, default 0): bytes of memory to reserve on the node. Nothing stops a process from using
                more.
            resources (dict, default {}): amounts of the cluster's own resources by name, other accelerators included.
                Not CPU, GPU or memory, which have options of their own.
            accelerator_type (str, default None): run on a node with this type of accelerator; see
                `util.accelerators`.
            scheduling_strategy (str or strategy, default "DEFAULT"): "DEFAULT", "SPREAD", or a strategy of
                `util.scheduling_strategies`: a node, nodes by label, or a placement group.
            label_selector (dict, default {}): labels that the node must have. Values may be `!x`, `in(x, y)` or
                `!in(x, y)`.
            fallback_strategy (list, default []): selectors `{"label_selector": {...}}` to try in this order while no
                node with `label_selector` has room.
            runtime_env (dict, default: the caller's): files, packages and variables of the worker; see `RuntimeEnv`.
            placement_group (PlacementGroup, default "default"): deprecated; use `scheduling_strategy`. None: not in
                the caller's placement group.
            placement_group_bundle_index (int, default -1): deprecated; the bundle in the placement group, -1 for any.
            placement_group_capture_child_tasks (bool, default: the caller's): deprecated; whether tasks and actors
                started inside stay in the placement group.
            enable_task_events (bool, default True): without effect; tasks and calls are always listed by
                `util.state`.
            _labels (dict, default None): without effect.
            _metadata (dict, default None): of a user's program without effect.
            name (str, default None): name by which `get_actor` finds the actor; unique in its namespace.
            max_restarts (int, default 0): restarts after the actor's process or node died; -1: no limit.
            max_task_retries (int, default 0): further attempts of a call after the actor died; -1: no limit.
            max_pending_calls (int, default -1): unfinished calls of one caller; one more raises
                `PendingCallsLimitExceeded`. -1: no limit.
            max_concurrency (int, default 1, for async actors 1000): calls that run at the same time, in threads or on
                the event loop.
            lifetime (str, default: the job's): "detached": the actor lives until it is killed. "non_detached": until
                its last handle is gone.
            namespace (str, default: the job's): namespace of `name`; not empty.
            get_if_exists (bool, default False): return the living actor of this `name` instead of starting another.
                Needs `name`.
            allow_out_of_order_execution (bool, default None): let calls overtake each other while an earlier one
                waits for its arguments. False is refused for async and threaded actors.
            object_store_memory (int, default None): deprecated. Bytes to take of the nodes' resource of that name.
            enable_tensor_transport (bool, default: whether a method has a `tensor_transport`): let calls have a
                `tensor_transport`. The actor's calls run on a thread then, not on the main thread.
            _actor_generator_backpressure_num_objects (int, default -1): values that all generators of the actor
                together may be ahead of their readers; 1 or more, or -1: no limit.

        Raises:
            TypeError: an option has a value of a wrong type.
            ValueError: an option does not exist for actors, is out of range, or contradicts another one.
        """
        _options.validate(options, _options.ACTOR, in_options=True)
        merged = {**self._defaults, **options}
        _options.check_name(merged)
        return _BoundActorClass(self, merged)

    def remote(self, *args: Any, **kwargs: Any) -> ActorHandle:
        """Starts an actor; returns at once."""
        return self._create(self._defaults, args, kwargs)

    def _remote(self, args: Any = None, kwargs: Any = None, **options: Any) -> ActorHandle:
        return self.options(**options).remote(*(args or ()), **(kwargs or {}))

    def bind(self, *args: Any, **kwargs: Any) -> Any:
        """A graph node that starts an actor when the graph is executed; see `runtime.dag`."""
        from runtime.dag import ClassNode

        return ClassNode(self, self._name, args, kwargs, self._defaults)

    def _create(self, options: Mapping[str, Any], args: Any, kwargs: Any) -> ActorHandle:
        core = current()
        name = options.get("name") or ""
        check_namespace(options.get("namespace"))
        namespace = options.get("namespace") or core.session.namespace
        if name == "" and options.get("name") is not None:
            raise ValueError(
                "Actor name cannot be an empty string: leave it out for an actor without a name."
            )
        if options.get("get_if_exists"):
            try:
                return get_actor(name, namespace)
            except ValueError:
                pass
        self._check(args, kwargs)
        asynchronous = is_async(self._class)
        concurrency = options.get("max_concurrency") or (ASYNC_MAX_CONCURRENCY if asynchronous else 1)
        ordered = _is_ordered(options.get("allow_out_of_order_execution"), asynchronous, concurrency)
        groups = groups_of(options.get("concurrency_groups"))
        if self._methods is None:
            self._methods = method_table(self._class)
        check_groups(self._name, self._methods, groups)
        if _has_transports(self._name, options.get("enable_tensor_transport"), self._methods):
            groups[tensor_transport.SYSTEM_GROUP] = 1
        request, capture, held = scheduling.actor_request(options, self.__qualname__)
        function = self._function(core)
        core.functions.publish(function)
        lifetime = options.get("lifetime") or core.job_settings.get("default_actor_lifetime")
        detached = lifetime == "detached"
        shape = ActorShape(
            self.__qualname__,
            self._methods,
            ordered,
            options.get("max_task_retries") or 0,
            options.get("max_pending_calls") or -1,
            detached,
            list(groups),
        )
        actor_id = ids.actor_id(core.job_id)
        spec = ActorSpec(
            actor_id,
            core.job_id,
            self.__qualname__,
            name,
            namespace,
            core.address,
            detached,
            options.get("max_restarts") or 0,
            shape.max_task_retries,
            concurrency,
            request,
            held,
            core.environment.of_child(options.get("runtime_env")),
            function.key,
            b"",
            msgspec.msgpack.encode(shape),
            bool((options.get("_metadata") or {}).get(SPARE)),
        )
        setup = ActorSetup(
            actor_id,
            concurrency,
            name,
            namespace,
            self._name,
            groups,
            capture_child_tasks=capture,
            stream_limit=options.get("_actor_generator_backpressure_num_objects") or -1,
            qualified_name=self.__qualname__,
        )
        other = core.actors.create(
            spec, setup, args, kwargs, ordered, bool(options.get("get_if_exists")), function.held
        )
        if other is not None:
            return handle_of(core, other)
        return new_handle(core, core.actors.actor(actor_id, None, ordered), shape)

    def _function(self, core: Core) -> Function:
        prepared = self._prepared
        if prepared is None or prepared[0] is not core:
            prepared = self._prepared = core, Function(self._class, self._name)
        return prepared[1]

    def __getstate__(self) -> dict[str, Any]:
        # All that is known: a class that refers to itself is still empty when this is unpickled.
        return {**self.__dict__, "_prepared": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)


def _has_transports(name: str, enabled: bool | None, methods: Mapping[str, MethodOptions]) -> bool:
    """Whether calls of an actor may have a `tensor_transport`.

    Raises:
        ValueError: it was switched off, and a method has one.
    """
    chosen = [method for method, options in methods.items() if options.tensor_transport]
    if chosen and enabled is False:
        raise ValueError(
            f"{name} has methods with @ray.method(tensor_transport=...), {', '.join(chosen)}, but "
            "@ray.remote(enable_tensor_transport=False): change one of them."
        )
    return bool(chosen or enabled)


def _is_ordered(out_of_order: bool | None, asynchronous: bool, concurrency: int) -> bool:
    """Whether calls begin in the order in which they were made."""
    if not asynchronous and concurrency == 1:
        return not out_of_order
    if out_of_order is False:
        kind = "async" if asynchronous else "multi-threaded"
        raise ValueError(
            f"If you're using {kind} actors, calls cannot run in order: leave allow_out_of_order_execution out, "
            "or set it to True."
        )
    return False


class _BoundActorClass:
    """`Class.options(...)`."""

    def __init__(self, actor_class: ActorClass, options: Mapping[str, Any]) -> None:
        self._actor_class = actor_class
        self._options = options

    def remote(self, *args: Any, **kwargs: Any) -> ActorHandle:
        """See `ActorClass.remote`."""
        return self._actor_class._create(self._options, args, kwargs)

    def bind(self, *args: Any, **kwargs: Any) -> Any:
        """See `ActorClass.bind`."""
        from runtime.dag import ClassNode

        return ClassNode(self, self._actor_class._name, args, kwargs, self._options)


def check_namespace(namespace: Any) -> None:
    """Raises TypeError or ValueError if it cannot be a namespace; None is the current one."""
    if namespace is not None and not isinstance(namespace, str):
        raise TypeError(f"namespace must be None or a string, not {namespace!r}.")
    if namespace == "":
        raise ValueError('"" is not a valid namespace. Pass None for the current one.')


def get_actor(name: str, namespace: str | None = None) -> ActorHandle:
    """Finds a live actor by name. The returned handle does not keep it alive; the one returned by `.remote()` does.

    Raises:
        ValueError: no live actor in the namespace has this name.
    """
    if not name:
        raise ValueError("Please supply a non-empty value to get_actor: the name of an actor.")
    if not isinstance(name, str):
        raise TypeError(f"The name of an actor is a string, not {name!r}.")
    check_namespace(namespace)
    core = current()
    reply = core.call_agent(GetNamedActor(name, namespace or core.session.namespace))
    if isinstance(reply, ErrorReply):
        if reply.kind == ErrorKind.NOT_FOUND:
            raise ValueError(
                f"Failed to look up actor with name {name!r} in namespace "
                f"{namespace or core.session.namespace!r}: no living actor has it. "
                "It may have died, or live in another namespace."
            )
        raise exceptions.RaySystemError(reply.message)
    return handle_of(core, reply)
