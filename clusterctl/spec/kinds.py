"""What the spec's types are made of. Strings with `extra={"env": True}` are those in which `${NAME}` is replaced by an
environment variable; in commands it is not, because there it belongs to the node's own shell."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

Count = Annotated[int, Meta(ge=0)]
Seconds = Annotated[float, Meta(ge=0)]
Port = Annotated[int, Meta(ge=0, le=65535)]
Amount = Annotated[float, Meta(ge=0)]
EnvString = Annotated[str, Meta(extra={"env": True})]


class Struct(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base of every part of the spec: immutable, strict."""
