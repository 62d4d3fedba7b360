"""The node agent: leases, worker pool, actors, object store and transfers, logs, and the node's line to the
control store. `agent.NodeAgent` is the composition root; nothing here imports `_control` or `_worker`.
"""
