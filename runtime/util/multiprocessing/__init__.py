"""`multiprocessing.Pool` over the cluster: the same interface, with actors instead of processes."""

from multiprocessing import JoinableQueue, TimeoutError

from .pool import Pool

__all__ = ["JoinableQueue", "Pool", "TimeoutError"]
