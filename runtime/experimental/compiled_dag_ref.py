"""Results of compiled graphs; see `runtime.dag.results`."""

from runtime.dag.results import CompiledDAGFuture, CompiledDAGRef

__all__ = ["CompiledDAGFuture", "CompiledDAGRef"]
