"""Rehearsals: a cluster on a fake clock, fed with a trace of demand and faults, under the real planner and
state machine.

`trace` says what is asked for and what goes wrong, `cluster` holds nodes and work, `world` is time and the
platform, `decider` the interface of whoever sizes the cluster, `rehearse` a whole run with its result, `draw`
its picture. Used by `clusterctl simulate`, benchmarks and tests; the autoscaler itself never imports it.
"""
