"""Words of collective communication."""

from enum import Enum


class Backend:
    """How a group communicates. `Backend("gloo")` checks a name and returns it in lower case.

    Raises:
        ValueError: the backend does not exist.
        RuntimeError: the backend is not supported here.
    """

    NCCL = "nccl"
    GLOO = "gloo"
    UNRECOGNIZED = "unrecognized"

    def __new__(cls, name: str = "gloo") -> str:  # type: ignore[misc]
        """Checks a name."""
        chosen = str(name).lower()
        if chosen in ("gloo", "torch_gloo"):
            return cls.GLOO
        if chosen == "nccl":
            raise RuntimeError(
                "NCCL is not available: groups communicate over the object store. Use backend='gloo'."
            )
        if chosen == "mpi":
            raise RuntimeError("MPI is not supported: use backend='gloo'.")
        raise ValueError(f"Unrecognized backend: '{name}'. Only GLOO is supported")


class ReduceOp(Enum):
    """How a reduction combines tensors."""

    SUM = 0
    PRODUCT = 1
    MAX = 2
    MIN = 3
    AVERAGE = 4
