"""Bytes <-> messages, without any input or output: framing, message types, serialization of user values.

Imports only `_core`. Everything that moves bytes (`_transport`) and every process imports it.
"""
