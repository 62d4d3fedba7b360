"""Machines of one's own, entered by SSH: taken and given back instead of made and ended.

`hosts` names them, `claim` is what is written on a machine of ours and the scripts that do it, `identity` the key by
which the head enters its workers, `provider` the protocol on top.
"""
