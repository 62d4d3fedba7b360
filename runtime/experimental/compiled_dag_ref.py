"""Results of compiled graphs; see `runtime.dag.compiled`."""

from runtime.dag.compiled import CompiledDAGFuture, CompiledDAGRef

__all__ = ["CompiledDAGFuture", "CompiledDAGRef"]
