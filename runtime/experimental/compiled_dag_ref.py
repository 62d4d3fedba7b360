"""What executions of a compiled graph return; see `runtime.dag.compiled`."""

from runtime.dag.compiled import CompiledDAGFuture, CompiledDAGRef

__all__ = ["CompiledDAGFuture", "CompiledDAGRef"]
