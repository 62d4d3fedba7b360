"""What the journal of an experiment says. Replayed in order, it gives the experiment again. Pure.

A frame is the length and CRC of a pickled record, then the record. What follows a frame that is cut or damaged, as
after a power cut, is not read.
"""

from __future__ import annotations

import pickle
import struct
import zlib
from collections.abc import Iterator
from typing import Any, TypeAlias

from runtime import cloudpickle

VERSION = 1
_HEAD = struct.Struct("<II")


BEGIN = "begin"  # version, seed of the search
ADDED = "added"  # trial id, config, evaluated params, tag, name, folder's name
RESULT = "result"  # trial number, result, checkpoint or None; what comes of it follows
PAUSED = "paused"  # trial number
RETRY = "retry"  # trial number, error
CHANGED = "changed"  # trial number, config, tag, checkpoint: another configuration
RESIZED = "resized"  # trial number, placement group factory
ENDED = "ended"  # trial number, how, error or None
SAVED = "saved"  # trial number, checkpoint, metrics: without a result of its own
RESUMED = "resumed"  # trial number, whether from its checkpoint

RETURNED, STOPPED, FAILED = "returned", "stopped", "failed"
"""How a trial ends."""

Record: TypeAlias = tuple[Any, ...]
"""Begins with its kind."""


def encode(record: Record) -> bytes:
    """The frame of a record."""
    try:
        data = pickle.dumps(record, 5)
    except Exception:  # lambdas, classes of the program
        data = cloudpickle.dumps(record)
    return _HEAD.pack(len(data), zlib.crc32(data)) + data


def decode(data: bytes) -> Iterator[Record]:
    """The records of whole frames, and nothing of what follows the first one that is not whole."""
    for at, size in _frames(data):
        yield pickle.loads(data[at : at + size])


def whole(data: bytes) -> int:
    """How many bytes whole frames take: what follows can be cut off."""
    end = 0
    for at, size in _frames(data):
        end = at + size
    return end


def _frames(data: bytes) -> Iterator[tuple[int, int]]:
    at = 0
    while at + _HEAD.size <= len(data):
        size, crc = _HEAD.unpack_from(data, at)
        at += _HEAD.size
        if at + size > len(data) or zlib.crc32(data[at : at + size]) != crc:
            return
        yield at, size
        at += size
