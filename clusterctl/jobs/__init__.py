"""Jobs as the operator's side sees them: records, packages of a folder, the follower of a job's output.

`records` is shared with the head's supervisor (`clusterctl.head.jobs`).
"""
