"""Decides how many machines of which kind a cluster needs, and makes it so. Knows a `Provider`, never a
cloud.

The deciding modules are pure: facts and `now` in, a plan out. `loop` is the shell that talks to the control
store and to the provider. Imports from `runtime` only placement, resources, labels, messages and the control
client.
"""
