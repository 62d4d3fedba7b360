"""The function that a runtime environment has called in each worker before its first task."""

from __future__ import annotations

import importlib
import traceback
from typing import Any

from runtime._core import environments
from runtime._owner.links import Links
from runtime._wire import serialization
from runtime._wire.messages.control import KvGet


def run_setup_hook(links: Links, hook: str) -> str:
    """Calls the hook.

    Args:
        hook: the URI of a pickled function, or the path of one, "package.module.function".

    Returns:
        What went wrong; "" when it returned.
    """
    try:
        _load(links, hook)()
    except Exception:
        name = "" if environments.parse_package_uri(hook) else f", {hook}: is it importable on every node?"
        return f"Failed to execute the setup hook method{name}\n{traceback.format_exc()}"
    return ""


def _load(links: Links, hook: str) -> Any:
    package = environments.parse_package_uri(hook)
    if package is None:
        module, _, name = hook.rpartition(".")
        return getattr(importlib.import_module(module), name)
    pickled = links.ask(KvGet(environments.PACKAGES, package[0].encode())).value
    if pickled is None:
        raise LookupError(f"the control store has no package {hook}")
    function, _ = serialization.deserialize(pickled)
    return function
