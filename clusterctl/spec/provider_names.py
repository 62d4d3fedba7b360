"""The table of provider types.

A type is a package of `clusterctl.providers` with two modules that import nothing heavy: `config`, whose CONFIG is the
class of the keys of `provider`, and `entry`, whose ENTRY is everything else that the launcher knows of the type. They
are imported by name, so that the spec depends on no provider.
"""

from __future__ import annotations

import importlib

from .kinds import ProviderConfig

NAMES = ("local", "ssh", "aws", "gcp", "external")


def configs() -> tuple[type[ProviderConfig], ...]:
    """The classes of the keys of `provider`."""
    return tuple(_given(name, "config", "CONFIG") for name in NAMES)  # type: ignore[misc]


def entry(name: str) -> object:
    """The entry of a type in `NAMES`."""
    return _given(name, "entry", "ENTRY")


def _given(name: str, module: str, what: str) -> object:
    found: object = getattr(importlib.import_module(f"clusterctl.providers.{name}.{module}"), what)
    return found
