"""The node's object store: shared memory and the service over it, run by the node agent. May import
`_transport` and below; `_node` composes it.
"""
