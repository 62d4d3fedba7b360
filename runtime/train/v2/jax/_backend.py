"""JAX's distributed runtime between the workers of a run."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

from runtime.train._api.trainer import BackendConfig
from runtime.train._run.addresses import Port
from runtime.train._run.backend import Backend, WorkerContext
from runtime.util import get_node_ip_address

PLATFORMS = "JAX_PLATFORMS"
JOIN_TIMEOUT_S = 300
"""How long ranks wait for each other when they connect."""
LEAVE_TIMEOUT_S = 3600
"""How long ranks that have returned wait for the others to return; then JAX takes these for dead, which fails the run.
One that has really died is noticed by the run's controller, which ends this wait."""


@dataclass
class JaxConfig(BackendConfig):
    """How the workers are connected: by `jax.distributed`, also on CPUs.

    Attributes:
        use_tpu: not supported.
        use_gpu: JAX computes on the workers' GPUs. JAX_PLATFORMS comes first, where it is set.

    Raises:
        NotImplementedError: TPUs are asked for.
    """

    use_tpu: bool = False
    use_gpu: bool = False

    def __post_init__(self) -> None:
        if self.use_tpu:
            raise NotImplementedError("use_tpu: training on TPU slices is not supported yet.")

    def make_backend(self) -> Backend:
        """What connects them."""
        return JaxBackend("cuda" if self.use_gpu else "cpu")

    def to_dict(self) -> dict[str, Any]:
        """The fields, as they are written to the run's folder."""
        return {"use_tpu": self.use_tpu, "use_gpu": self.use_gpu}


class JaxBackend(Backend):
    """Every rank is a process of JAX: `jax.devices()` are those of all ranks.

    JAX is not imported before workers are forked: it warns of forks, since it has threads.

    Args:
        platform: of JAX, unless the environment says another.
    """

    has_rendezvous = True

    def __init__(self, platform: str) -> None:
        self._platform = platform
        self._port: Port | None = None

    def rendezvous(self, context: WorkerContext) -> dict[str, Any]:
        """Chooses where rank 0 listens. JAX's service starts in `join`."""
        self._port = Port()
        return {"address": f"{get_node_ip_address()}:{self._port.number}"}

    def join(self, rendezvous: dict[str, Any], context: WorkerContext) -> None:
        """Connects with the other ranks.

        Raises:
            RuntimeError: they do not come in time, or JAX has computed in this process before.
        """
        os.environ.setdefault(PLATFORMS, self._platform)
        import jax

        jax.distributed.initialize(
            rendezvous["address"],
            num_processes=context.get_world_size(),
            process_id=context.get_world_rank(),
            initialization_timeout=JOIN_TIMEOUT_S,
            shutdown_timeout_seconds=LEAVE_TIMEOUT_S,
        )

    def leave(self) -> None:
        """Disconnects, and forgets the devices, so that the process can be a member of another group. JAX waits for the
        other ranks, and may end the process if one is gone: then a new one takes its place."""
        import jax
        from jax.extend import backend

        if jax.distributed.is_initialized():
            try:
                jax.distributed.shutdown()
            finally:
                jax.clear_caches()
                backend.clear_backends()
        if self._port is not None:
            self._port.release()
            self._port = None
