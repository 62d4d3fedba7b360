"""The core functions: remote, get, put, wait, kill and cancel. `init` and `shutdown` are in `_api/init.py`."""

from __future__ import annotations

import inspect
import operator
from collections.abc import Mapping, Sequence
from typing import Any

from runtime._api import tensor_transport
from runtime._api.init import init, is_initialized, shutdown
from runtime._owner import context
from runtime._owner.waiting import split
from runtime._process.core_worker import attached, current, current_or_none
from runtime.actor import ActorClass, ActorHandle
from runtime.object_ref import ObjectRef
from runtime.object_ref_generator import ObjectRefGenerator
from runtime.remote_function import RemoteFunction

__all__ = [
    "cancel",
    "get",
    "get_gpu_ids",
    "init",
    "is_initialized",
    "kill",
    "put",
    "remote",
    "shutdown",
    "wait",
]


def remote(*args: Any, **options: Any) -> Any:
    """Turns a function into a task or a class into an actor: `@remote`, `@remote(num_cpus=2)` or `remote(f)`.

    `f.options(...)` and `Class.options(...)` replace options for one call. None means the default; `retry_exceptions`,
    `get_if_exists` and `enable_task_events` do not take it.

    Args:
        args: the function or class, when there are no options.

    Options of tasks and actors:
        num_cpus (float): CPUs; 0 or more, in steps of 0.0001. Default: a task takes 1; an actor takes 1 for its
            constructor and then none, or 1 for its life if it asks for resources other than memory.
        num_gpus (float, default 0): GPUs; from 1 up whole ones. Less than 1 shares a device with others.
        memory (float, default 0): whole bytes to reserve on the node. Nothing stops a process from using more.
        resources (dict, default {}): amounts of the cluster's own resources by name, other accelerators included. Not
            CPU, GPU or memory, which have options of their own.
        accelerator_type (str, default None): run on a node with this type of accelerator; see `util.accelerators`.
        scheduling_strategy (str or strategy, default "DEFAULT"): "DEFAULT", "SPREAD", or a strategy of
            `util.scheduling_strategies`: a node, nodes by label, or a placement group.
        label_selector (dict, default {}): labels that the node must have. Values may be `!x`, `in(x, y)` or `!in(x,
            y)`.
        fallback_strategy (list, default []): selectors `{"label_selector": {...}}` to try in this order while no node
            with `label_selector` has room.
        runtime_env (dict, default: the caller's): files, packages and variables of the worker; see `RuntimeEnv`.
        placement_group (PlacementGroup, default "default"): deprecated; use `scheduling_strategy`. None: not in the
            caller's placement group.
        placement_group_bundle_index (int, default -1): deprecated; the bundle in the placement group, -1 for any.
        placement_group_capture_child_tasks (bool, default: the caller's): deprecated; whether tasks and actors
            started inside stay in the placement group.
        enable_task_events (bool, default True): without effect; tasks and calls are always listed by `util.state`.
        _labels (dict, default None): without effect.
        _metadata (dict, default None): without effect.
        name (str, default None): of a task, its name in logs and `util.state`; of an actor, the name by which
            `get_actor` finds it, unique in its namespace.

    Options of tasks:
        num_returns (int or str, default 1, "streaming" for generators): references that a call returns: 0 or more, or
            "streaming" for an `ObjectRefGenerator`. "dynamic" is deprecated.
        max_retries (int, default 3): further attempts after the worker or node died; -1: no limit.
            RAY_TASK_MAX_RETRIES changes the default.
        retry_exceptions (bool or list, default False): retry also when the function raised: any exception, or an
            instance of these classes.
        _generator_backpressure_num_objects (int, default -1): values that a generator may be ahead of its reader; -1:
            no limit. Not 0.
        _generator_backpressure_num_bytes (int, default -1): their size, beyond which one value may go; -1: no limit.
            Not 0.
        _num_objects_per_yield (int, default 1): objects that a generator makes of each yielded tuple; 1 or more.
        max_calls (int, default 0, with GPUs 1): calls of this function after which its worker exits; 0: no limit.

    Options of actors:
        max_restarts (int, default 0): restarts after the actor's process or node died; -1: no limit.
        max_task_retries (int, default 0): further attempts of a call after the actor died; -1: no limit.
        max_pending_calls (int, default -1): unfinished calls of one caller; one more raises
            `PendingCallsLimitExceeded`. -1: no limit.
        max_concurrency (int, default 1, for async actors 1000): calls that run at the same time, in threads or on the
            event loop.
        lifetime (str, default: the job's): "detached": the actor lives until it is killed. "non_detached": until its
            last handle is gone.
        namespace (str, default: the job's): namespace of `name`; not empty.
        get_if_exists (bool, default False): return the living actor of this `name` instead of starting another. Needs
            `name`.
        allow_out_of_order_execution (bool, default None): let calls overtake each other while an earlier one waits
            for its arguments. False is refused for async and threaded actors.
        object_store_memory (int, default None): deprecated. Bytes to take of the nodes' resource of that name.
        enable_tensor_transport (bool, default: whether a method has a `tensor_transport`): let calls have a
            `tensor_transport`. The actor's calls run on a thread then, not on the main thread.
        _actor_generator_backpressure_num_objects (int, default -1): values that all generators of the actor together
            may be ahead of their readers; 1 or more, or -1: no limit.
        concurrency_groups (dict or list, default {}): names of concurrency groups and how many calls of each run at
            the same time, at least 1.

    Raises:
        AssertionError: the arguments are neither one function or class, nor options alone.
        TypeError: the target is neither a function nor a class, or an option has a value of a wrong type.
        ValueError: an option does not exist for the target, is out of range, or contradicts another one.
    """
    if len(args) == 1 and not options and callable(args[0]):
        return _make_remote(args[0], {})
    if args or not options:
        raise AssertionError(
            "The @ray.remote decorator must be applied either with no arguments and no parentheses, for example "
            "'@ray.remote', or with options by keyword, for example '@ray.remote(num_cpus=2, max_retries=0)'."
        )
    return lambda target: _make_remote(target, options)


def _make_remote(target: Any, options: Mapping[str, Any]) -> RemoteFunction | ActorClass:
    if inspect.isclass(target):
        return ActorClass(target, options)
    if inspect.isfunction(target) or type(target).__name__ == "cython_function_or_method":
        return RemoteFunction(target, options)
    raise TypeError(
        f"The @ray.remote decorator must be applied to either a function or a class, not to {target!r}."
    )


def get(object_refs: Any, *, timeout: float | None = None, _use_object_store: bool = False) -> Any:
    """Waits for the value of a reference, or the values of a list of references, and returns it.

    Args:
        object_refs: an `ObjectRef` or a list of them.
        timeout: seconds to wait; 0 returns only values that are ready. None, or less than 0: no limit.
        _use_object_store: tensors that stay in an actor (`tensor_transport`) come through the object store.

    Raises:
        GetTimeoutError: not all values were ready in time.
        RayTaskError: a task raised. The error is also an instance of the class of that exception.
        RayError: the value is lost or cannot be made; the subclass says why.
    """
    if _use_object_store:
        with tensor_transport.through_object_store():
            return get(object_refs, timeout=timeout)
    refs = object_refs
    if timeout is not None and timeout < 0:
        timeout = None
    if refs.__class__ is ObjectRef:
        return attached().reader.get((refs,), timeout)[0]
    if hasattr(refs, "_compiled_result"):
        return refs._compiled_result(timeout)
    if isinstance(refs, ObjectRefGenerator):
        return refs
    if not isinstance(refs, list):
        raise ValueError(
            f"Invalid type of object refs, {type(refs)}, is given: get() takes an ObjectRef or a list of ObjectRefs."
        )
    for ref in refs:
        if ref.__class__ is not ObjectRef:
            if all(hasattr(one, "_compiled_result") for one in refs):
                return [one._compiled_result(timeout) for one in refs]
            raise TypeError(f"Attempting to call `get` on the value {ref!r}, which is not an ray.ObjectRef.")
    return (attached() if refs else current()).reader.get(refs, timeout)


def put(value: Any, *, _owner: ActorHandle | None = None, _tensor_transport: Any = None) -> ObjectRef:
    """Stores a value and returns a reference to it. Large values go to this node's shared memory.

    Args:
        value: anything that can be pickled.
        _owner: an actor that owns the value instead of this process: the value lives as long as the actor.
            (Ray had this until 2.55.)

    Raises:
        TypeError: the value is itself a reference, or cannot be pickled.
        ValueError: `_owner` is not an actor handle, or `_tensor_transport` is not "object_store".
        RayActorError: the actor that should own the value is dead.
        ObjectStoreFullError: the object store has no room.
    """
    if isinstance(value, ObjectRef):
        raise TypeError(
            "Calling 'put' on an ray.ObjectRef is not allowed: what it refers to is stored already. To store the "
            "reference itself, put it in a list."
        )
    if chosen := tensor_transport.normalized(_tensor_transport):
        raise ValueError(
            f"ray.put(_tensor_transport=) is not supported for {chosen}, to which both sides contribute: use "
            f"@ray.method(tensor_transport={chosen.lower()!r}), or leave it out."
        )
    if _owner is not None:
        if not isinstance(_owner, ActorHandle):
            raise ValueError(f"put(_owner=) takes the handle of an actor, not {_owner!r}.")
        core = current()
        return core.object_admin.put_for(value, core.actors.address(_owner._ray_actor))
    return current().objects.put(value)


def wait(
    ray_waitables: Sequence[Any],
    *,
    num_returns: int = 1,
    timeout: float | None = None,
    fetch_local: bool = True,
) -> tuple[list[Any], list[Any]]:
    """Waits until `num_returns` of the references are ready, or `timeout` seconds.

    A generator is ready when its next reference is ready or its task has ended.

    Returns:
        The ready references (at most `num_returns`) and all others, each in the given order.

    Raises:
        TypeError: the argument is not a list of references.
        ValueError: a reference is given twice, or `num_returns` is out of range.
    """
    core = current_or_none()
    if core is None:
        _check_waitables(ray_waitables)
        core = attached() if ray_waitables else current()
    waiter = core.waiter
    known = waiter.known(ray_waitables)
    generators = False if known else _check_waitables(ray_waitables)
    if timeout is not None and timeout < 0:
        raise ValueError(
            f"The 'timeout' argument must be nonnegative, or None to wait without a limit. Received {timeout}"
        )
    if not known:
        names = ray_waitables if generators else map(_binary_of, ray_waitables)
        if len(set(names)) != len(ray_waitables):
            raise ValueError("Wait requires a list of unique ray_waitables: one stands in it twice.")
        if not ray_waitables:
            return [], []
    if num_returns <= 0:
        raise ValueError(f"Invalid number of objects to return {num_returns}: ask for one at least.")
    if num_returns > len(ray_waitables):
        raise ValueError(
            "num_returns cannot be greater than the number of ray_waitables provided to wait: "
            f"{num_returns} of {len(ray_waitables)}."
        )
    if generators:  # what a generator gives next stands for it
        peeked = [ref if ref.__class__ is ObjectRef else ref._peek() for ref in ray_waitables]
        return split(ray_waitables, waiter.wait(peeked, num_returns, timeout, fetch_local))
    found = waiter.wait(ray_waitables, num_returns, timeout, fetch_local, known is not None)
    ready, rest = split(ray_waitables, found)
    waiter.remember(rest, known, found)
    return ready, rest


_binary_of = operator.attrgetter("_binary")


def _check_waitables(waitables: Any) -> bool:
    """Whether the arguments of `wait` include generators.

    Raises:
        TypeError: the argument is not a list, or contains anything but references and generators.
    """
    expected = "wait() expected a list of ray.ObjectRef or ray.ObjectRefGenerator"
    if isinstance(waitables, ObjectRef | ObjectRefGenerator):
        raise TypeError(f"{expected}, got a single one: {waitables!r}.")
    if not isinstance(waitables, list):
        raise TypeError(f"{expected}, got {type(waitables)}.")
    if set(map(type, waitables)) <= {ObjectRef}:
        return False
    for ref in waitables:
        if not isinstance(ref, ObjectRef | ObjectRefGenerator):
            raise TypeError(f"{expected}, got list containing {type(ref)}: {ref!r}.")
    return True


def kill(actor: ActorHandle, *, no_restart: bool = True) -> None:
    """Ends an actor at once. With `no_restart=False` its `max_restarts` apply.

    Raises:
        ValueError: `actor` is not an actor handle.
    """
    if not isinstance(actor, ActorHandle):
        raise ValueError(
            f"ray.kill() only supported for actors. For tasks, try ray.cancel(). Got: {type(actor)}."
        )
    actor._ray_kill(no_restart)


def cancel(ray_waitable: Any, *, force: bool = False, recursive: bool = True) -> None:
    """Cancels the task that makes a reference or a stream: a queued task does not start, a running one is interrupted.
    `force` kills its process.

    Raises:
        TypeError: the argument is not a reference returned by a task.
        ValueError: `force` was given for a call of an actor.
    """
    ref = ray_waitable
    if isinstance(ref, ObjectRefGenerator):
        ref = ref._generator_ref
    if not isinstance(ref, ObjectRef):
        raise TypeError(
            f"ray.cancel() only supported for object refs. For actors, try ray.kill(). Got: {type(ref)}."
        )
    attached().cancellation.cancel(ref._entry, force, recursive)


def get_gpu_ids() -> list[Any]:
    """The ids of the GPUs that the current task or actor may use."""
    executor = current().executor
    running = context.execution.get()
    if executor is None or running is None or running.lease is None:
        return []
    return executor.devices.gpu_ids(running.lease.gpu_ids)
