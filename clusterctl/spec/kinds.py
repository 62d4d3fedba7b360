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


def env_string(description: str) -> Meta:
    """What annotates a string with a description in which environment variables are replaced."""
    return Meta(description=description, extra={"env": True})


Python = Annotated[
    str, env_string("The Python of the machines: 3.11 or newer, the same minor version on all.")
]


class Struct(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base of every part of the spec: immutable, strict."""


class ProviderConfig(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="type"):
    """Base of the keys of `provider`: each type has its own class, tagged with its name, and says what follows from the
    values."""

    @property
    def type_name(self) -> str:
        """`provider.type`."""
        return str(self.__struct_config__.tag)

    @property
    def zones(self) -> tuple[str, ...]:
        """The zones of node types that name none, the best one first. Empty: any."""
        return ()

    @property
    def place(self) -> tuple[str, ...]:
        """Where the machines are: with other values, nobody finds them."""
        return ()

    @property
    def of_node(self) -> object:
        """What a node depends on. When it changes, nodes are outdated."""
        return self

    @property
    def of_head(self) -> str:
        """What the head's machine depends on besides; "": nothing."""
        return ""

    @property
    def may_have_secrets(self) -> bool:
        """Whether credentials may be among the values."""
        return False


def listed(text: str) -> tuple[str, ...]:
    """The words of a value that separates them by commas."""
    return tuple(word.strip() for word in text.split(",") if word.strip())
