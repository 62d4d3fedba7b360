"""Preprocessors: statistics fitted on a data set, then applied to its batches."""
