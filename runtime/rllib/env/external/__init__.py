"""Environments outside of the cluster, which sample by themselves and send episodes over TCP."""

from .rllink import RLlink, get_rllink_message, send_rllink_message

__all__ = ["RLlink", "get_rllink_message", "send_rllink_message"]
