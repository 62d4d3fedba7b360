"""Workers that start with a library's modules imported."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

SPARE: Final = "spare"
"""In `_metadata` of an actor's options, a true value says that more of these actors are asked for than have room, so
that one is ready as soon as there is some. That they wait is not reported then, unless no node could ever hold them."""


def preloaded(*modules: str, runtime_env: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """The `runtime_env` of tasks and actors, gangs included, whose workers have these modules imported.

    A node imports them once per set of modules and environment, in a process of its own, and forks the workers from
    it. Where that is not possible (a module starts threads or opens an accelerator), each worker imports them itself.
    Variables of `runtime_env` are part of the environment, so what differs from worker to worker should be an argument.

    Args:
        modules: their names. Those that the program asks for itself come first.
        runtime_env: what the user asks for besides.
    """
    env = dict(runtime_env or {})
    return {**env, "preload": list(dict.fromkeys([*(env.get("preload") or ()), *modules]))}
