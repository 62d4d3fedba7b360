"""The environment in which TensorFlow's strategies find the workers of a run."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from typing import Any

from runtime.train._api.trainer import BackendConfig
from runtime.train._run.addresses import Port, exchanged
from runtime.train._run.backend import Backend, WorkerContext

CLUSTER = "TF_CONFIG"
LEGACY_KERAS = "TF_USE_LEGACY_KERAS"


@dataclass
class TensorflowConfig(BackendConfig):
    """How the workers are connected: TensorFlow does it, and each listens at a free port."""

    def make_backend(self) -> Backend:
        """What finds the ports."""
        return TensorflowBackend()


class TensorflowBackend(Backend):
    """Sets TF_CONFIG, as described at https://www.tensorflow.org/guide/distributed_training.

    TensorFlow configures its servers and collective operations once in a process ("must be configured at program
    startup"), and a strategy that is made later fails with the ranks that have left.
    """

    needs_new_process = True

    def __init__(self) -> None:
        self._port: Port | None = None

    def join(self, rendezvous: dict[str, Any], context: WorkerContext) -> None:
        """Chooses a port and learns those of the others."""
        self._port = Port()
        workers = exchanged(self._port)
        task = {"type": "worker", "index": context.get_world_rank()}
        os.environ[CLUSTER] = json.dumps({"cluster": {"worker": workers}, "task": task})
        os.environ.setdefault(LEGACY_KERAS, "1")  # Keras 3 has no strategy for several workers

    def leave(self) -> None:
        """Forgets the addresses. TensorFlow's servers live as long as the process."""
        os.environ.pop(CLUSTER, None)
        if self._port is not None:
            self._port.release()
