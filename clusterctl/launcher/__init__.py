"""Brings clusters up and down: facts -> plan (pure) -> apply. `setup` turns a machine into a node.

Runs on the operator's side; the head uses `node_types` and `setup` for its workers.
"""
