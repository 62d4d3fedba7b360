"""`ray.util.helpers`."""

from runtime.util import as_completed, map_unordered

__all__ = ["as_completed", "map_unordered"]
