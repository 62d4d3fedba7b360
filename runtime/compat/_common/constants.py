"""`ray._common.constants`."""

from runtime._private.ray_constants import HEAD_NODE_RESOURCE_NAME

NODE_ID_PREFIX = "node:"

__all__ = ["HEAD_NODE_RESOURCE_NAME", "NODE_ID_PREFIX"]
