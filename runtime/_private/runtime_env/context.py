"""What a runtime environment comes down to, as its plugins see and change it."""

from __future__ import annotations

import sys


class RuntimeEnvContext:
    """How the workers of an environment are started.

    Args:
        command_prefix: words of a shell command that come before the one that starts Python.
        env_vars: environment variables of the workers.
        py_executable: the command that starts Python.
        override_worker_entrypoint: kept for programs that set it; workers have no other entry point here.
        java_jars: kept for programs that set it.
    """

    def __init__(
        self,
        command_prefix: list[str] | None = None,
        env_vars: dict[str, str] | None = None,
        py_executable: str | None = None,
        override_worker_entrypoint: str | None = None,
        java_jars: list[str] | None = None,
    ) -> None:
        self.command_prefix = command_prefix or []
        self.env_vars = env_vars or {}
        self.py_executable = py_executable or sys.executable
        self.override_worker_entrypoint = override_worker_entrypoint
        self.java_jars = java_jars or []
