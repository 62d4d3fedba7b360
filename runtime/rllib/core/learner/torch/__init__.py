"""Learners for torch."""
