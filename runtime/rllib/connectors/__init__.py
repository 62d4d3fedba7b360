"""Connectors: what happens to data between environment and module, module and environment, and before an update.

`connector_v2` has the interface of a piece, and how a piece stays in the fast loops of runners and learners. The
default pieces exist for pipelines of users' pieces; without those, runners and learners do the same on whole columns.
"""
