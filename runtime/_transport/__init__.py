"""The only code that touches sockets: asyncio channels (Unix, TCP, in-process) for the daemons, and the pump that
drivers and workers use on the hot path. Speaks frames and messages of `_wire`; knows nothing of what they mean.
"""
