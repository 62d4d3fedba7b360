"""The library inside every driver and worker: submit, execute, own, count references, get and put.

`core_worker.Core` is the composition root of a process; `current()` there is the one of this process. Imports only
`_transport`, `_wire` and `_core`: no asyncio unless an async actor runs.
"""
