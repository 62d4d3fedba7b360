"""Effects of the controller of serving, besides those of every controller."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from runtime._controllers.controller import Key, Own


class Put(Own, frozen=True):
    """Stores a value in the control store before anything that follows; None removes the key."""

    key: bytes
    value: bytes | None


class Adopt(Own, frozen=True):
    """Finds a detached actor by its name: afterwards it is as if this process had created it. `ActorDied` follows if
    there is none."""

    key: Key
    name: str


class CreateDetached(Own, frozen=True):
    """Creates a detached actor by its name: as `CreateActor`.

    Attributes:
        cls: import path, `module:Class`.
        node: id of the only node for it; "" for any.
        bundles: of a placement group of its own, in whose first bundle it runs; it has the name of the actor.
    """

    key: Key
    name: str
    cls: str
    args: Sequence[Any]
    options: Mapping[str, Any] = msgspec.field(default_factory=dict)
    node: str = ""
    bundles: Sequence[Mapping[str, float]] = ()
    strategy: str = "PACK"
    selectors: Sequence[Mapping[str, str]] = ()


class RemoveGroup(Own, frozen=True):
    """Removes the placement group of that name, if there is one."""

    name: str
