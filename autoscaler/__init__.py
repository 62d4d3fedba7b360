"""Decides how many machines of which kind a cluster needs, and makes it so. Knows a `Provider`, never a
cloud.

`reconciler` decides, without input or output: facts and `now` in, effects out. It keeps what is known in the instance
table, in `experience` and in `dispatch`. `loop` is the shell around it: it ticks, `platform_watch` asks the provider,
`carrying_out` does what was decided. Imports from `runtime` only placement, resources, labels, messages and the control
client.
"""
