"""Machines that are groups of processes of this host.

`machine` is one machine's folder and processes, `processes` finds what belongs to a machine, `init` is the
process that a machine consists of, `provider` the protocol on top.
"""
