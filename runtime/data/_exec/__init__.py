"""Runs plans: in the driver on Arrow's threads (`local`), or as streaming operators on the cluster (`driver`).

What decides is pure (`state`, `credits`, `sizing`); `tasks` is what runs in a worker.
"""
