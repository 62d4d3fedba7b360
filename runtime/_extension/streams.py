"""Generators of libraries: metadata that rides with an item, and limits in bytes.

A generator yields `Described(value, metadata)`; who reads the stream gets the metadata with the reference and decides
what to do with the value without fetching it. The option `_generator_backpressure_num_bytes` limits the size of the
items that nobody has taken, with and without `_generator_backpressure_num_objects`.
"""

from __future__ import annotations

from typing import Any

import msgspec

from runtime.object_ref import ObjectRef
from runtime.object_ref_generator import Described

from .process import connected

__all__ = ["Described", "flush", "metadata_of"]


def metadata_of(ref: ObjectRef) -> Any:
    """What the generator of an item has sent along, in the process that called the generator; None if nothing."""
    packed = connected().objects.metadata.get(ref.binary())
    return None if packed is None else msgspec.msgpack.decode(packed)


def flush() -> None:
    """Hands what this process has to send over to the kernel: a signal that ends the process does not stop it from
    arriving any more. For a generator that has yielded. What a full connection does not take leaves later."""
    connected().links.pump.flush_all()
