"""Runs plans: in the driver on Arrow's threads (`local`), or as streaming operators on the cluster (`driver`).

What decides is pure: `state` (the controller), `operators`, `credits`, `sizing`, and the plans in `exchange`.
`compiling` makes operators of a plan. `programs` and `steps` are what runs in a worker; `split_server` is an actor.
"""
