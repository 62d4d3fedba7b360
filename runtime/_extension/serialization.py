"""How values of libraries travel, where pickle costs too much or cannot."""

from __future__ import annotations

from runtime._wire.serialization import (
    PLAIN,
    Serialized,
    aligned,
    deregister_serializer,
    deserialize,
    dump_plain,
    dumps,
    not_serializable,
    register_serializer,
    serialize,
)
from runtime._wire.serializers import Reducer, register

__all__ = [
    "PLAIN",
    "Reducer",
    "Serialized",
    "aligned",
    "deregister_serializer",
    "deserialize",
    "dump_plain",
    "dumps",
    "not_serializable",
    "register",
    "register_serializer",
    "serialize",
]
