"""Errors of spaces, environments and serialization."""

from __future__ import annotations


class UnsupportedSpaceException(Exception):
    """An algorithm or a module cannot use an observation or action space."""


class EnvError(Exception):
    """An environment does not behave as its interface says."""


class MultiAgentEnvError(Exception):
    """A multi-agent environment does not behave as its interface says."""


class NotSerializable(Exception):
    """An object cannot be serialized."""
