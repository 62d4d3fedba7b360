"""Environments for examples and tests."""
