"""What a runtime environment has done in each worker before its first task: modules imported, a function called."""

from __future__ import annotations

import importlib
import traceback
from collections.abc import Sequence
from typing import Any

from runtime._core import environments
from runtime._owner.links import Links
from runtime._wire import serialization
from runtime._wire.messages.control import KvGet

from . import thread_limit


def set_up(links: Links, modules: Sequence[str], hook: str) -> str:
    """Imports the modules, which is at once done where the zygote has them, and calls the hook.

    Args:
        hook: the URI of a pickled function, or the path of one, "package.module.function"; "" for none.

    Returns:
        What went wrong; "" when nothing did.
    """
    for name in modules:
        try:
            importlib.import_module(name)
        except BaseException:
            return f"Failed to import {name}, which runtime_env['preload'] names\n{traceback.format_exc()}"
    thread_limit.preloaded(modules)
    if hook:
        try:
            _load(links, hook)()
        except Exception:
            name = (
                "" if environments.parse_package_uri(hook) else f", {hook}: is it importable on every node?"
            )
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
