"""The control store: nodes, jobs, actors, placement groups, key-value pairs and the demand for machines.

One process per cluster (or a part of a local session's process). Never imports `_node` or `_worker`.
"""
