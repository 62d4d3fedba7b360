"""Modules of the examples."""
