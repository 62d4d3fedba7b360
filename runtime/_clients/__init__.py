"""Typed, reconnecting clients that several processes share. Built on `_transport`; imported by everything
above.
"""
