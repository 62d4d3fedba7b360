"""What a running execution shows: bars on a terminal, metrics, and the text of `Dataset.stats`.

`views` reads an execution, `bars` writes lines, `gauges` sets metrics; `watcher` is the thread that does so now and
then. It reads `_exec` and `_plan`; only `_api` uses it.
"""
