"""Process groups of torch.distributed for the workers of a run."""

from __future__ import annotations

import contextlib
import logging
import os
import sys
import threading
from datetime import timedelta
from typing import Any

from runtime.train._run.backend import Backend, WorkerContext
from runtime.train.torch._environment import interface_of, variables
from runtime.util import get_node_ip_address

log = logging.getLogger(__name__)

JOIN_TIMEOUT_S = 300.0
"""How long ranks wait for each other when they form a group, at most."""
LEAVE_TIMEOUT_S = 10.0
"""How long a healthy group may take to be destroyed before it is aborted: NCCL waits for what its kernels still do."""


class TorchBackend(Backend):
    """Forms the default process group around each call of the training function.

    Args:
        kind: the backend of torch.distributed; None: by the worker's device.
        timeout_s: of collective operations.
    """

    # DistributedDataParallel imports the second, which would cost each process more than a second.
    modules = ("torch", "torch._dynamo")
    has_rendezvous = True

    def __init__(self, kind: str | None = None, timeout_s: float = 1800.0) -> None:
        self._kind = kind
        self._timeout_s = timeout_s
        self._store: Any = None

    def rendezvous(self, context: WorkerContext) -> dict[str, Any]:
        """Opens the group's store on this node, which is rank 0's.

        Returns:
            host, port: where the ranks find it.
        """
        host = get_node_ip_address()
        self._store = self._opened(host, 0, context.get_world_size(), serves=True)
        return {"host": host, "port": self._store.port}

    def join(self, rendezvous: dict[str, Any], context: WorkerContext) -> None:
        """Enters the group; all ranks do it side by side.

        Raises:
            RuntimeError: the other ranks did not come in time, or one has died.
        """
        import torch
        import torch.distributed as distributed

        from runtime.train.torch._devices import own_devices

        rank, world_size = context.get_world_rank(), context.get_world_size()
        host, port = rendezvous["host"], rendezvous["port"]
        if rank != 0:
            self._store = self._opened(host, port, world_size, serves=False)
        store = self._store
        _show_gpus_to_neighbours(store, context)
        device = own_devices()[0]
        os.environ.update(variables(context, host, port, str(device)))
        # Gloo would take the interface of the host's name, which often stands for 127.0.1.1.
        interface = interface_of(get_node_ip_address())
        if interface is not None:
            os.environ.setdefault("GLOO_SOCKET_IFNAME", interface)
        if device.type == "cuda":
            torch.cuda.set_device(device)
        hook = sys.excepthook
        distributed.init_process_group(
            self._kind or ("nccl" if device.type == "cuda" else "gloo"),
            store=store,
            rank=rank,
            world_size=world_size,
            timeout=timedelta(seconds=self._timeout_s),
        )
        sys.excepthook = hook  # each group would put its rank before the traceback, the next one too

    def leave(self) -> None:
        """Destroys the group. One that has failed, or takes too long, is aborted: its operations end with errors."""
        import torch
        import torch.distributed as distributed

        if distributed.is_initialized() and not _destroyed(LEAVE_TIMEOUT_S):
            self.abort()
        self._store = None
        _forget_ranks()
        if torch.cuda.is_initialized():
            torch.cuda.empty_cache()

    def abort(self) -> None:
        """Ends the operations of the group with errors, where its backend can: NCCL does. Gloo ends them when a rank
        that takes part has ended."""
        import torch.distributed as distributed

        group = distributed.group.WORLD
        if group is not None:
            with contextlib.suppress(Exception):  # a backend that cannot
                group.abort()

    def _opened(self, host: str, port: int, world_size: int, serves: bool) -> Any:
        import torch.distributed as distributed

        timeout = timedelta(seconds=min(JOIN_TIMEOUT_S, self._timeout_s))
        return distributed.TCPStore(host, port, world_size, serves, timeout, wait_for_workers=False)


def _destroyed(timeout_s: float) -> bool:
    """Destroys the default group. False: not within the timeout."""
    import torch.distributed as distributed

    failure: list[Exception] = []

    def destroy() -> None:
        try:
            distributed.destroy_process_group()
        except Exception as error:
            failure.append(error)

    # On a thread of its own, because there is no timeout of torch's for it.
    thread = threading.Thread(target=destroy, name="destroy_process_group", daemon=True)
    thread.start()
    thread.join(timeout_s)
    if failure:
        log.warning("The process group was not destroyed cleanly and is aborted: %s", failure[0])
    return not thread.is_alive() and not failure


def _forget_ranks() -> None:
    """Resets what Accelerate keeps about the group for the life of the process: the next one may have other ranks."""
    state: Any = sys.modules.get("accelerate.state")
    if state is not None:
        for each in (state.GradientState, state.AcceleratorState, state.PartialState):
            each._reset_state()


def _show_gpus_to_neighbours(store: Any, context: WorkerContext) -> None:
    """Lets the workers of a node see each other's GPUs, as torchrun's do: `cuda:LOCAL_RANK` is the worker's then, and
    NCCL copies directly between them. Has no effect on a process that has used CUDA before.
    """
    import torch

    from runtime.train.torch._devices import gpu_ids, visible

    own, count = gpu_ids(), context.get_local_world_size()
    if not own or count == 1:
        return
    node = context.get_node_rank()
    store.set(f"gpus/{node}/{context.get_local_rank()}", ",".join(own))
    texts = [store.get(f"gpus/{node}/{rank}") for rank in range(count)]
    shown = visible()
    if not torch.cuda.is_initialized() and shown is not None:
        everyone = [each for text in texts for each in text.decode().split(",")]
        os.environ["CUDA_VISIBLE_DEVICES"] = ",".join(dict.fromkeys(everyone))
