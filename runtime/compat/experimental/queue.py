"""`ray.experimental.queue`."""

from runtime.util.queue import Empty, Full, Queue

__all__ = ["Empty", "Full", "Queue"]
