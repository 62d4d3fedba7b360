"""Rehearsals: a cluster on a fake clock, fed with a trace of demand and faults, under the real planner and
state machine.

`trace` says what is asked for and what goes wrong, `clock` is time, `cluster` holds nodes and work, `platform`
(with its `troubles` and the `meter`) machines and what they cost, `decider` is the interface of whoever sizes
the cluster, `world` brings them together, `rehearse` is a whole run with its result, `draw` its picture. Used
by `clusterctl simulate`, benchmarks and tests; the autoscaler itself never imports it.
"""
