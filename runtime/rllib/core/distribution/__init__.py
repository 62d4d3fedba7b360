"""Distributions over actions that modules parametrise."""
