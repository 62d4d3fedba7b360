"""Providers that are not part of this package: `loading` imports one by the path of its class, and brings its module to
the head.
"""
