"""What the libraries' controllers share: one loop that carries out what pure controllers decide, and groups of actors.

A controller (`controller.Controller`) is a state machine without I/O: events and the time go in, effects come out.
`Loop` runs one over an `Engine`, which is the cluster (`cluster.ClusterEngine`) or a simulation. `members` is the
machine of an actor in a group, `policies` what different libraries make of it. See docs/writing-a-controller.md.
"""
