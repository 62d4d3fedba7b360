"""How values of libraries travel, where pickle costs too much or cannot."""

from __future__ import annotations

from runtime._wire.serialization import deregister_serializer, register_serializer
from runtime._wire.serializers import Reducer, register

__all__ = ["Reducer", "deregister_serializer", "register", "register_serializer"]
