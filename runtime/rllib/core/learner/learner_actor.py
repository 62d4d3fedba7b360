"""One learner in an actor, and the process group that it forms with others."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from runtime.util import get_node_ip_address

from .. import COMPONENT_RL_MODULE

JOIN_TIMEOUT_S = 120.0
"""How long learners wait for each other when they form their group."""
COLLECTIVE_TIMEOUT_S = 1800.0
"""How long a learner waits for the others' gradients. Their shards have equal sizes, so they hardly differ."""

STATE_AFTER_UPDATE = "_rl_module_state_after_update"


class LearnerActor:
    """Builds a learner and calls it.

    Args:
        learner_class: its class.
        kwargs: its arguments.
        index: its number, from 0.
        count: how many learners there are.
    """

    def __init__(self, learner_class: type, kwargs: dict[str, Any], index: int, count: int) -> None:
        self._learner = learner_class(**kwargs)
        self._learner._learner_index = index
        self._index, self._count = index, count
        self._store: Any = None

    def open_store(self) -> tuple[str, int]:
        """Opens the group's store on this node.

        Returns:
            Host and port.
        """
        host = get_node_ip_address()
        self._store = _store(host, 0, self._count, serves=True)
        return host, self._store.port

    def build(self, host: str | None = None, port: int = 0) -> None:
        """Builds the learner; with a host, it joins the process group first."""
        if host is not None:
            self._join(host, port)
        self._learner.build()

    def _join(self, host: str, port: int) -> None:
        import torch
        import torch.distributed as distributed

        # Gloo would take the interface of the host's name, which often stands for 127.0.1.1.
        from runtime.train.torch._environment import interface_of

        interface = interface_of(get_node_ip_address())
        if interface is not None:
            os.environ.setdefault("GLOO_SOCKET_IFNAME", interface)
        if self._store is None:
            self._store = _store(host, port, self._count, serves=False)
        has_gpu = self._learner.config.num_gpus_per_learner > 0 and torch.cuda.is_available()
        distributed.init_process_group(
            "nccl" if has_gpu else "gloo",
            store=self._store,
            rank=self._index,
            world_size=self._count,
            timeout=timedelta(seconds=COLLECTIVE_TIMEOUT_S),
        )

    def update(self, kwargs: dict[str, Any], return_state: bool = False) -> Any:
        """The learner's `update`, with the module's weights if they are asked for."""
        results = self._learner.update(**kwargs)
        if return_state:
            results[STATE_AFTER_UPDATE] = self._learner.get_state(COMPONENT_RL_MODULE, inference_only=True)[
                COMPONENT_RL_MODULE
            ]
        return results

    def apply(self, func: Callable[..., Any], kwargs: dict[str, Any]) -> Any:
        """`func(learner, **kwargs)`."""
        return func(self._learner, **kwargs)

    def packed_checkpoint(self, state: Any = None, use_msgpack: bool = False) -> dict[str, bytes]:
        """The files of the learner's checkpoint."""
        return self._learner.packed_checkpoint(state, use_msgpack)

    def restore_packed_checkpoint(self, packed: dict[str, bytes], component: str | None = None) -> None:
        """Sets the learner's state from the files of a checkpoint."""
        self._learner.restore_packed_checkpoint(packed, component)

    def shutdown(self) -> None:
        """Ends the learner's threads and leaves the group."""
        self._learner.shutdown()
        if self._count > 1:
            import torch.distributed as distributed

            with contextlib.suppress(Exception):  # a rank that died has broken the group already
                distributed.destroy_process_group()


def _store(host: str, port: int, count: int, serves: bool) -> Any:
    import torch.distributed as distributed

    return distributed.TCPStore(
        host, port, count, serves, timedelta(seconds=JOIN_TIMEOUT_S), wait_for_workers=False
    )
