"""Batches of columns with the names of earlier versions of RLlib."""
