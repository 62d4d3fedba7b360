"""A driver or worker process as a whole: its connections, the zygote that forks workers, metrics and logs.

`core_worker.Core` is the composition root of a process; `current()` there is the one of this process.
"""
