"""Helpers for networks of torch."""
