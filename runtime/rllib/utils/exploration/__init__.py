"""Exploration: how actions are drawn around those that a module holds for best."""
