"""Graphs of tasks and actor calls that are built first and executed later: `f.bind(...)`, `InputNode`,
`MultiOutputNode`, `dag.execute(...)`. Public; on top of the core API.
"""

from runtime.dag.class_node import ClassMethodNode, ClassNode
from runtime.dag.compiled import CompiledDAG
from runtime.dag.context import DAGContext
from runtime.dag.function_node import FunctionNode
from runtime.dag.input_node import DAGInputData, InputAttributeNode, InputNode
from runtime.dag.node import DAGNode, compile_with
from runtime.dag.output_node import MultiOutputNode

__all__ = [
    "ClassMethodNode",
    "ClassNode",
    "CompiledDAG",
    "DAGContext",
    "DAGInputData",
    "DAGNode",
    "FunctionNode",
    "InputAttributeNode",
    "InputNode",
    "MultiOutputNode",
]

compile_with(CompiledDAG)
