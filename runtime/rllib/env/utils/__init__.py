"""Helpers of environments and episodes."""
