"""Addresses of the workers of a run, which LightGBM connects by itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from runtime.train._api.trainer import BackendConfig
from runtime.train._run.addresses import Port, exchanged
from runtime.train._run.backend import Backend, WorkerContext
from runtime.train._run.session import current

_network: dict[str, Any] = {}


@dataclass
class LightGBMConfig(BackendConfig):
    """How the workers are connected: each listens at a free port."""

    def make_backend(self) -> Backend:
        """What finds the ports."""
        return LightGBMBackend()


class LightGBMBackend(Backend):
    """Tells every rank where the others listen."""

    modules = ("lightgbm",)

    def __init__(self) -> None:
        self._port: Port | None = None

    def join(self, rendezvous: dict[str, Any], context: WorkerContext) -> None:
        """Chooses a port and learns those of the others."""
        if context.get_world_size() == 1:
            return
        self._port = Port()
        machines = exchanged(self._port)
        _network.update(
            machines=",".join(machines),
            local_listen_port=self._port.number,
            num_machines=context.get_world_size(),
            pre_partition=True,
        )

    def leave(self) -> None:
        """Forgets the addresses. LightGBM closes its connections when a training ends."""
        _network.clear()
        if self._port is not None:
            self._port.release()


def get_network_params() -> dict[str, Any]:
    """What LightGBM's parameters need so that the ranks train one model; nothing with one worker.

    Raises:
        RuntimeError: this is not a training function.
    """
    current()
    return dict(_network)
