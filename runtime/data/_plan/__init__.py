"""The plan of a data set: immutable nodes, rules that rewrite them, and how both are printed. Pure: no I/O, no cluster.

It imports expressions and aggregations, and nothing of `_exec`.
"""
