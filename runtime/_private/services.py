"""`ray._private.services`."""

from runtime.util import get_node_ip_address

__all__ = ["get_node_ip_address"]
