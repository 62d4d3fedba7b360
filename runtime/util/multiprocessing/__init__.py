"""`multiprocessing.Pool` over the cluster: the same calls, with actors for processes."""

from multiprocessing import JoinableQueue, TimeoutError

from .pool import Pool

__all__ = ["JoinableQueue", "Pool", "TimeoutError"]
