"""Explains a broken cluster: `collect` gathers facts, here and on every machine, and `diagnosis` says what they mean.

Used by `clusterctl doctor` only.
"""
