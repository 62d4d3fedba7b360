"""Learners of the examples."""
