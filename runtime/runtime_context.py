"""Facts about the process, task and actor that a program runs in."""

from __future__ import annotations

import os
import warnings
from typing import TYPE_CHECKING, Any

from runtime import exceptions
from runtime._api.actor_handle import ActorHandle, handle_of
from runtime._core import bundles, ids, resources
from runtime._core.accelerators import HARDWARE
from runtime._owner import context
from runtime._process.core_worker import Core, current
from runtime._wire.messages.control import ActorInfo, WatchActor
from runtime.runtime_env import RuntimeEnv

if TYPE_CHECKING:
    from runtime._wire.messages.worker import ActorSetup


class RuntimeContext:
    """Facts about the current driver, task or actor. Ids are hexadecimal strings, or None."""

    def __init__(self, core: Core) -> None:
        self._core = core

    def get_job_id(self) -> str:
        """The job of this process."""
        job_id: bytes = self._core.job_id
        return job_id.hex()

    def get_node_id(self) -> str:
        """The node of this process."""
        return self._core.address.node_id.hex()

    def get_worker_id(self) -> str:
        """The id of this worker or driver process."""
        return self._core.address.worker_id.hex()

    def get_task_id(self) -> str | None:
        """The running task or call."""
        running = context.execution.get()
        return running.task_id.hex() if running is not None else None

    def get_task_name(self) -> str | None:
        """The running task's `name` option, else the function's own name."""
        running = context.execution.get()
        return running.name if running is not None else None

    def get_task_function_name(self) -> str | None:
        """The function that the running task calls."""
        running = context.execution.get()
        return running.function_name if running is not None else None

    def get_actor_id(self) -> str | None:
        """The current actor."""
        running = context.execution.get()
        return running.actor_id.hex() if running is not None and running.actor_id else None

    def get_actor_name(self) -> str | None:
        """The name of the current actor; "" if it has none."""
        setup = self._setup()
        return setup.name if setup is not None else None

    @property
    def namespace(self) -> str:
        """The namespace of the job."""
        return self._core.session.namespace

    @property
    def was_current_actor_reconstructed(self) -> bool:
        """Whether the actor was restarted."""
        self._in_worker()
        setup = self._setup()
        if setup is None:
            raise RuntimeError("This method is only available in an actor, but the caller is not an actor.")
        return bool(setup.restarts)

    def get_placement_group_id(self) -> str | None:
        """The placement group that the task or actor runs in."""
        running = context.execution.get()
        if running is None or running.lease is None or not running.lease.placement_group_id:
            return None
        return running.lease.placement_group_id.hex()

    @property
    def should_capture_child_tasks_in_placement_group(self) -> bool:
        """Whether tasks started here stay in the current placement group."""
        return context.captures_children()

    def get_assigned_resources(self) -> dict[str, float]:
        """The resources of the running task or actor, by name.

        Raises:
            AssertionError: this process is a driver.
        """
        self._in_worker()
        running = context.execution.get()
        if running is None or running.lease is None:
            return {}
        return bundles.without_groups(resources.to_floats(running.lease.resources))

    def get_accelerator_ids(self) -> dict[str, list[str]]:
        """The ids of the accelerators that the task or actor may use, by kind."""
        found: dict[str, list[str]] = {name: [] for name in HARDWARE}
        executor = self._core.executor
        running = context.execution.get()
        if executor is not None and running is not None and running.lease is not None:
            for name, numbers in {"GPU": running.lease.gpu_ids, **running.lease.other_ids}.items():
                found[name] = executor.devices.ids(name, numbers)
        return found

    def get_node_labels(self) -> dict[str, str]:
        """The labels of this process's node."""
        return dict(self._core.session.labels)

    def get_runtime_env_string(self) -> str:
        """The runtime environment of this process as JSON."""
        return self._core.environment.text

    @property
    def runtime_env(self) -> RuntimeEnv:
        """The runtime environment of this process; a driver's is that of its job's workers."""
        return RuntimeEnv(_validate=False, **self._core.environment.fields)

    @property
    def current_actor(self) -> ActorHandle:
        """A handle for the current actor. Neither it nor copies of it keep the actor alive."""
        running = context.execution.get()
        if running is None or not running.actor_id:
            raise RuntimeError("This method is only available in an actor, but the caller is not an actor.")
        reply = self._core.call_agent(WatchActor(running.actor_id, -1, 0.0))
        if not isinstance(reply, ActorInfo):
            raise exceptions.RaySystemError(f"cannot look up the current actor: {reply.message}")
        return handle_of(self._core, reply)

    @property
    def gcs_address(self) -> str:
        """Address of the control store."""
        address: str = self._core.session.control_address or self._core.agent.remote_path
        return address

    def is_canceled(self) -> bool:
        """Whether the running task was cancelled. Long tasks and methods of sync actors can check it and stop.

        Raises:
            RuntimeError: no task is running, or it is a call of an async actor, which asyncio cancels.
        """
        executor, running = self._core.executor, context.execution.get()
        if executor is None or running is None:
            raise RuntimeError(
                "is_canceled() is only available when the process is a worker, but this one is a driver."
            )
        if executor.is_async:
            raise RuntimeError("is_canceled() is not supported in an async actor: asyncio cancels its calls.")
        return running.cancelled

    def get_session_name(self) -> str:
        """The name of the node's session folder."""
        return os.path.basename(self._core.session.session_dir)

    def get_temp_dir(self) -> str:
        """The folder of all sessions on this machine."""
        return os.path.dirname(self._core.session.session_dir)

    # ------------------------------------------------------------ deprecated

    @property
    def job_id(self) -> ids.JobID:
        """Deprecated: see `get_job_id`."""
        _deprecated("job_id", "get_job_id()")
        return ids.JobID(self._core.job_id)

    @property
    def node_id(self) -> ids.NodeID:
        """Deprecated: see `get_node_id`."""
        _deprecated("node_id", "get_node_id()")
        return ids.NodeID(self._core.address.node_id)

    @property
    def task_id(self) -> ids.TaskID | None:
        """Deprecated: see `get_task_id`. Raises AssertionError in a driver."""
        _deprecated("task_id", "get_task_id()")
        self._in_worker()
        running = context.execution.get()
        return ids.TaskID(running.task_id) if running is not None else None

    @property
    def actor_id(self) -> ids.ActorID | None:
        """Deprecated: see `get_actor_id`. Raises AssertionError in a driver."""
        _deprecated("actor_id", "get_actor_id()")
        self._in_worker()
        running = context.execution.get()
        return ids.ActorID(running.actor_id) if running is not None and running.actor_id else None

    @property
    def current_placement_group_id(self) -> ids.PlacementGroupID:
        """Deprecated: see `get_placement_group_id`. The nil id outside of placement groups."""
        _deprecated("current_placement_group_id", "get_placement_group_id()")
        found = self.get_placement_group_id()
        return ids.PlacementGroupID.from_hex(found) if found else ids.PlacementGroupID.nil()

    def get_resource_ids(self) -> dict[str, list[str]]:
        """Deprecated: see `get_accelerator_ids`."""
        _deprecated("get_resource_ids()", "get_accelerator_ids()")
        return self.get_accelerator_ids()

    def get(self) -> dict[str, Any]:
        """Deprecated: the main ids in one dict."""
        _deprecated("get()", "the get_..._id() methods")
        found: dict[str, Any] = {
            "job_id": ids.JobID(self._core.job_id),
            "node_id": ids.NodeID(self._core.address.node_id),
            "namespace": self.namespace,
        }
        running = context.execution.get()
        if running is not None:
            found["task_id"] = ids.TaskID(running.task_id)
            if running.actor_id:
                found["actor_id"] = ids.ActorID(running.actor_id)
        return found

    def _in_worker(self) -> None:
        if self._core.executor is None:
            raise AssertionError(
                "This method is only available when the process is a worker, but this is a driver (mode 0)."
            )

    def _setup(self) -> ActorSetup | None:
        return self._core.executor.setup if self._core.executor is not None else None


def _deprecated(name: str, instead: str) -> None:
    warnings.warn(f"RuntimeContext.{name} is deprecated: use {instead}.", DeprecationWarning, stacklevel=3)


def get_runtime_context() -> RuntimeContext:
    """The context of the caller."""
    return RuntimeContext(current())
