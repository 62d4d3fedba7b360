"""The deployment's class, at the path where programs import it from."""

from __future__ import annotations

from runtime.serve.llm.server import LLMServer

__all__ = ["LLMServer"]
