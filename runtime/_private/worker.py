"""`ray._private.worker`: the public functions under another name, and `global_worker`."""

from __future__ import annotations

import os

from runtime import RESTORE_WORKER_MODE, SCRIPT_MODE, SPILL_WORKER_MODE, WORKER_MODE
from runtime._api.cluster_view import connected
from runtime._api.init import context_of_session, init, is_initialized, shutdown
from runtime._api.ray_context import RayContext
from runtime._core import ids
from runtime._owner import context
from runtime._process.core_worker import Core, current_or_none
from runtime.actor import get_actor
from runtime.api import cancel, get, get_gpu_ids, kill, put, remote, wait

__all__ = [
    "RESTORE_WORKER_MODE",
    "SCRIPT_MODE",
    "SPILL_WORKER_MODE",
    "WORKER_MODE",
    "RayContext",
    "cancel",
    "get",
    "get_actor",
    "get_gpu_ids",
    "global_worker",
    "init",
    "is_initialized",
    "kill",
    "put",
    "remote",
    "shutdown",
    "wait",
]


class _Node:
    """The node of this process, as far as programs ask for it."""

    def __init__(self, core: Core) -> None:
        self._session = core.session
        self.address_info = context_of_session().address_info

    @property
    def unique_id(self) -> str:
        """The node's id in hex."""
        return self._session.node_id.hex()

    node_id = unique_id

    @property
    def node_ip_address(self) -> str:
        """Its address."""
        return self._session.node_host

    @property
    def gcs_address(self) -> str:
        """The address of the control store."""
        return str(self.address_info["gcs_address"])

    @property
    def session_name(self) -> str:
        """The name of its session's folder."""
        return os.path.basename(self._session.session_dir)

    def get_session_dir_path(self) -> str:
        """Its session's folder."""
        return self._session.session_dir

    def get_logs_dir_path(self) -> str:
        """Where its logs are."""
        return os.path.join(self._session.session_dir, "logs")

    def get_temp_dir_path(self) -> str:
        """The folder of all sessions."""
        return os.path.dirname(self._session.session_dir)

    def is_head(self) -> bool:
        """Whether it is the cluster's head."""
        return self._session.is_head


class _GlobalWorker:
    """What programs ask Ray's own object of this process."""

    @property
    def connected(self) -> bool:
        """Whether the process is connected."""
        return current_or_none() is not None

    @property
    def mode(self) -> int | None:
        """SCRIPT_MODE in a driver, WORKER_MODE in a worker, None when not connected."""
        core = current_or_none()
        if core is None:
            return None
        return SCRIPT_MODE if core.is_driver else WORKER_MODE

    @property
    def worker_id(self) -> bytes:
        """The id of this process."""
        return connected().address.worker_id

    @property
    def current_job_id(self) -> ids.JobID:
        """The job that this process works for; nil when not connected."""
        core = current_or_none()
        return ids.JobID(core.job_id) if core is not None else ids.JobID.nil()

    @property
    def current_node_id(self) -> ids.NodeID:
        """The node of this process."""
        return ids.NodeID(connected().address.node_id)

    @property
    def current_task_id(self) -> ids.TaskID:
        """The running task; nil where there is none."""
        running = context.execution.get()
        return ids.TaskID(running.task_id) if running is not None else ids.TaskID.nil()

    @property
    def actor_id(self) -> ids.ActorID:
        """The actor that lives in this process; nil where there is none."""
        running = context.execution.get()
        return (
            ids.ActorID(running.actor_id) if running is not None and running.actor_id else ids.ActorID.nil()
        )

    @property
    def namespace(self) -> str:
        """The namespace of the job."""
        return connected().session.namespace

    @property
    def node(self) -> _Node:
        """The node of this process."""
        return _Node(connected())

    @property
    def node_ip_address(self) -> str:
        """The address of this node."""
        return connected().session.node_host

    def check_connected(self) -> None:
        """Raises RaySystemError when the process is not connected."""
        connected()


global_worker = _GlobalWorker()
