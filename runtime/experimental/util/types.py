"""`ReduceOp` for collective operations in graphs."""

from runtime.util.collective.types import ReduceOp

__all__ = ["ReduceOp"]
