"""How workers form a process group of torch.distributed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from runtime.train.torch._backend import TorchBackend

INIT_METHODS = ("env", "tcp")


@dataclass
class TorchConfig:
    """The process group that every worker of a `TorchTrainer` has when its training function begins.

    Attributes:
        backend: for example "gloo", "nccl" or "cpu:gloo,cuda:nccl". None: "nccl" for workers with a GPU, else "gloo".
        init_method: "env" or "tcp". The workers meet at a store on rank 0 either way, whose address they find in
            MASTER_ADDR and MASTER_PORT.
        timeout_s: seconds until a collective operation fails that some rank does not join.

    Raises:
        ValueError: on an unknown `init_method`, or a timeout that is not positive.
    """

    backend: str | None = None
    init_method: str = "env"
    timeout_s: int = 1800

    def __post_init__(self) -> None:
        if self.init_method not in INIT_METHODS:
            raise ValueError(
                f"init_method must be one of {', '.join(INIT_METHODS)}, not {self.init_method!r}."
            )
        if self.timeout_s <= 0:
            raise ValueError(f"timeout_s must be positive, not {self.timeout_s}.")

    def make_backend(self) -> TorchBackend:
        """What forms the group in the workers."""
        return TorchBackend(self.backend, float(self.timeout_s))

    def to_dict(self) -> dict[str, Any]:
        """The fields, as they are written to the run's folder."""
        return {"backend": self.backend, "init_method": self.init_method, "timeout_s": self.timeout_s}
