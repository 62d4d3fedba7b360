"""The base class of plugins, which give fields of `runtime_env` a meaning of their own.

Nodes find plugins through the environment variable RAY_RUNTIME_ENV_PLUGINS, a JSON list such as
`[{"class": "package.module.Class", "priority": 3}]`.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from runtime._private.runtime_env.context import RuntimeEnvContext

if TYPE_CHECKING:
    from runtime.runtime_env import RuntimeEnv

__all__ = ["RuntimeEnvContext", "RuntimeEnvPlugin"]


class RuntimeEnvPlugin:
    """Prepares one field of runtime environments on a node. All methods have a default.

    The methods run in a thread of the node agent, one environment after the other unless `create` awaits something.
    An exception fails the tasks and actors of the environment with `RuntimeEnvSetupError`.

    Attributes:
        name: the field.
        priority: from 0 to 100; plugins with smaller ones come first.
    """

    name: str = ""
    priority: int = 10

    @staticmethod
    def validate(runtime_env_dict: Mapping[str, Any]) -> None:
        """Raises an exception when the field's value is wrong."""

    def get_uris(self, runtime_env: RuntimeEnv) -> list[str]:
        """Names of what the field needs on the node. Each is created once, and deleted when nobody needs it."""
        return []

    async def create(
        self, uri: str | None, runtime_env: RuntimeEnv, context: RuntimeEnvContext, logger: logging.Logger
    ) -> float:
        """Makes what `uri` names, and returns its size in bytes. `uri` is None, every time, if there are no URIs."""
        return 0

    def modify_context(
        self, uris: list[str], runtime_env: RuntimeEnv, context: RuntimeEnvContext, logger: logging.Logger
    ) -> None:
        """Changes how the workers are started."""
        return

    def delete_uri(self, uri: str, logger: logging.Logger) -> float:
        """Deletes what `create` made, and returns its size in bytes."""
        return 0
