"""Machines of one's own, entered by SSH: taken and given back instead of made and ended.

`hosts` names them, `claim` is what is written on a machine of ours and the scripts that do it, `provider` the protocol
on top.
"""
