"""The arguments of a call that are references: their values go into the push, or where they are."""

from __future__ import annotations

import msgspec

from runtime._wire.messages.base import WorkerAddress
from runtime._wire.messages.worker import Argument, InlineArguments, Push, Value

from .records import PackedArguments


def fill(packed: PackedArguments, push: Push, us: WorkerAddress) -> tuple[Push, Value | None]:
    """The push with the top-level references, now that their values are there; and the first error among them. `us`:
    the owner of what has no other."""
    refs: list[Argument] = []
    positions: list[int] = []
    data: list[bytes] = []
    for entry, place in zip(packed.entries, packed.places, strict=True):
        value = entry.value
        named = place.__class__ is str
        if value is not None and not value.kind and not value.buffers and not value.nested and not named:
            positions.append(place)  # type: ignore[arg-type]
            data.append(value.data)
        elif value is not None and value.kind & 1:
            entry.seen = True
            return push, value
        else:
            position, keyword = (-1, place) if named else (place, "")
            refs.append(Argument(position, keyword, entry.object_id, entry.owner or us, value))  # type: ignore[arg-type]
    inline = InlineArguments(positions, data) if positions else None
    return msgspec.structs.replace(push, refs=refs, inline=inline), None
