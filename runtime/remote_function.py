"""`@remote` functions."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any

from runtime._api import invocation, scheduling
from runtime._api import options as _options
from runtime._api.signature import ArgumentCheck, parameters_of
from runtime._owner import context
from runtime._owner.functions import Function
from runtime._ownership.tasks import TaskOptions
from runtime._process.core_worker import Core, current
from runtime._system import settings


class RemoteFunction:
    """A function that runs in the cluster: `f.remote(...)` returns a reference (or several) at once."""

    def __init__(self, function: Callable[..., Any], options: Mapping[str, Any]) -> None:
        _options.validate(options, _options.TASK)
        self._function = function
        self._defaults = dict(options)
        self._name = self._function_name = f"{function.__module__}.{function.__qualname__}"
        self._is_generator = inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function)
        if inspect.iscoroutinefunction(function):
            raise ValueError(
                f"'async def' should not be used for remote tasks, as in {self._name}: call asyncio.run() in a plain "
                "function, or make it a method of an actor."
            )
        _options.require_generator(options, self._is_generator, self._name)
        limit = options.get("max_calls")
        # What a library holds of a GPU's memory goes only with its process.
        self._max_calls = int(bool(options.get("num_gpus"))) if limit is None else limit
        self._exported: tuple[Core, Function] | None = None
        self._prepared: tuple[Core, Function, TaskOptions, Any] | None = None
        self._check = ArgumentCheck(parameters_of(function))
        self._decorator = invocation.decorator_of(function)
        functools.update_wrapper(self, function)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        name = self._function.__name__
        raise TypeError(
            f"Remote functions cannot be called directly: in place of {name}() write {name}.remote()."
        )

    def options(self, **options: Any) -> _BoundOptions:
        """The same function with other options for its calls. None means the default below, whatever
        the decorator says.

        All options of tasks but `max_calls`, which belongs to the decorator:

        Args:
            num_cpus (float, default 1): CPUs that the task takes; 0 or more, in steps of 0.0001.
            num_gpus (float, default 0): GPUs; from 1 up whole ones. Less than 1 shares a device with others.
            memory (float, default 0): whole bytes to reserve on the node. Nothing stops a process from using
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
            _metadata (dict, default None): without effect.
            name (str, default: the function's): name of the task in logs and `util.state`.
            num_returns (int or str, default 1, "streaming" for generators): references that a call returns: 0 or
                more, or "streaming" for an `ObjectRefGenerator`. "dynamic" is deprecated.
            max_retries (int, default 3): further attempts after the worker or node died; -1: no limit.
                RAY_TASK_MAX_RETRIES changes the default.
            retry_exceptions (bool or list, default False): retry also when the function raised: any exception, or an
                instance of these classes.
            _generator_backpressure_num_objects (int, default -1): values that a generator may be ahead of its reader;
                -1: no limit. Not 0.
            _generator_backpressure_num_bytes (int, default -1): their size, beyond which one value may go; -1: no
                limit. Not 0.
            _num_objects_per_yield (int, default 1): objects that a generator makes of each yielded tuple; 1 or more.

        Raises:
            TypeError: an option has a value of a wrong type.
            ValueError: an option does not exist for tasks, is out of range, or contradicts another one;
                `_num_objects_per_yield` differs from that of the decorator.
        """
        _options.validate(options, _options.TASK, in_options=True)
        _options.require_generator(options, self._is_generator, self._name)
        per_yield = options.get("_num_objects_per_yield")
        if per_yield is not None and per_yield != (self._defaults.get("_num_objects_per_yield") or 1):
            raise ValueError(
                "_num_objects_per_yield cannot be overridden per call, as the function decides what it yields: "
                "write it in @remote."
            )
        return _BoundOptions(self, {**self._defaults, **options})

    def remote(self, *args: Any, **kwargs: Any) -> Any:
        """Starts a task. Returns an `ObjectRef`, a list of them (num_returns > 1), None (0), or a generator."""
        if context.captures_children():
            prepared = self._prepare(self._defaults)  # the parent's placement group decides
        else:
            known = self._prepared
            if known is None or known[0] is not current():
                known = self._prepared = self._prepare(self._defaults)
            prepared = known
        return self._submit(prepared, args, kwargs)

    def _remote(self, args: Any = None, kwargs: Any = None, **options: Any) -> Any:
        return self.options(**options).remote(*(args or ()), **(kwargs or {}))

    def bind(self, *args: Any, **kwargs: Any) -> Any:
        """A graph node that starts this task when the graph is executed; see `runtime.dag`."""
        from runtime.dag import FunctionNode

        return FunctionNode(self, self._name, args, kwargs, self._defaults)

    def _function_of(self, core: Core) -> Function:
        known = self._exported
        if known is None or known[0] is not core:
            known = self._exported = core, Function(self._function, self._name, self._max_calls)
        return known[1]

    def _prepare(self, options: Mapping[str, Any]) -> tuple[Core, Function, TaskOptions, Any]:
        core = current()
        function = self._function_of(core)
        request, capture = scheduling.task_request(options, self._function.__qualname__)
        retry = options.get("retry_exceptions") or False
        retries = options.get("max_retries")
        task = TaskOptions(
            request,
            core.environment.of_child(options.get("runtime_env")),
            _options.num_returns(options, self._is_generator),
            settings.TASK_MAX_RETRIES.get() if retries is None else retries,
            retry if isinstance(retry, bool) else tuple(retry),
            options.get("name") or "",
            capture,
            _options.stream_options(options),
        )
        return core, function, task, core.submitter.pool(function, task)

    def _submit(self, prepared: tuple[Core, Function, TaskOptions, Any], args: Any, kwargs: Any) -> Any:
        if self._decorator is not None:
            return invocation.invoke(
                self._decorator, functools.partial(self._submit_call, prepared), args, kwargs
            )
        return self._submit_call(prepared, args, kwargs)

    def _submit_call(self, prepared: tuple[Core, Function, TaskOptions, Any], args: Any, kwargs: Any) -> Any:
        core, function, options, pool = prepared
        self._check(args, kwargs)
        return core.submitter.submit(pool, function, options, args, kwargs)

    def __getstate__(self) -> dict[str, Any]:
        # All that is known: a function that refers to itself is still empty when this is unpickled.
        return {**self.__dict__, "_prepared": None, "_exported": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)


class _BoundOptions:
    """`f.options(...)`."""

    def __init__(self, function: RemoteFunction, options: Mapping[str, Any]) -> None:
        self._function = function
        self._options = options
        self._prepared: tuple[Core, Function, TaskOptions, Any] | None = None

    def remote(self, *args: Any, **kwargs: Any) -> Any:
        """See `RemoteFunction.remote`."""
        if context.captures_children():
            prepared = self._function._prepare(self._options)
        else:
            known = self._prepared
            if known is None or known[0] is not current():
                known = self._prepared = self._function._prepare(self._options)
            prepared = known
        return self._function._submit(prepared, args, kwargs)

    def bind(self, *args: Any, **kwargs: Any) -> Any:
        """See `RemoteFunction.bind`."""
        from runtime.dag import FunctionNode

        return FunctionNode(self, self._function._name, args, kwargs, self._options)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_prepared": None}
