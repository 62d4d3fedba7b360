"""Files on their way to other machines: what of a folder travels, and archives of it.

Above `_core` only; the driver's side, node agents and `clusterctl` all use it.
"""
