"""Spaces beyond those of gymnasium, and functions of spaces."""
