"""Identifiers: fixed-length byte strings with Ray's lengths. On the wire and in tables they are plain `bytes`.

A task id is 8 unique bytes and the 16-byte id of the actor it runs on (12 zero bytes and the job id for a plain task);
an object id is its task's id and a 4-byte index; an actor id ends with its job id.
"""

from __future__ import annotations

import os
from typing import ClassVar, Self

JOB_BYTES = 4
ACTOR_BYTES = 16
TASK_BYTES = 24
OBJECT_BYTES = 28
CREATION_PREFIX = b"\xff" * 8
"""How the ids of actors' constructor calls begin; the results of these count the handles."""
UNIQUE_BYTES = 28
PLACEMENT_GROUP_BYTES = 18


class BaseID:
    """A fixed-length, hashable, immutable identifier."""

    SIZE: ClassVar[int] = UNIQUE_BYTES
    __slots__ = ("_binary",)

    def __init__(self, binary: bytes) -> None:
        if not isinstance(binary, bytes):
            raise TypeError(f"Unsupported type: {type(binary)}, expected bytes")
        if len(binary) != self.SIZE:
            raise ValueError(f"ID string needs to have length {self.SIZE}, got {len(binary)}")
        self._binary = binary

    @classmethod
    def from_binary(cls, binary: bytes) -> Self:
        return cls(binary)

    @classmethod
    def from_hex(cls, text: str) -> Self:
        return cls(bytes.fromhex(text))

    @classmethod
    def from_random(cls) -> Self:
        return cls(os.urandom(cls.SIZE))

    @classmethod
    def nil(cls) -> Self:
        return cls(b"\xff" * cls.SIZE)

    @classmethod
    def size(cls) -> int:
        return cls.SIZE

    def binary(self) -> bytes:
        return self._binary

    def hex(self) -> str:
        return self._binary.hex()

    def is_nil(self) -> bool:
        return self._binary == b"\xff" * self.SIZE

    def __hash__(self) -> int:
        return hash(self._binary)

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and self._binary == other._binary

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.hex()})"

    def __reduce__(self) -> tuple[type[Self], tuple[bytes]]:
        return type(self), (self._binary,)


class UniqueID(BaseID):
    __slots__ = ()


class NodeID(UniqueID):
    __slots__ = ()


class WorkerID(UniqueID):
    __slots__ = ()


class FunctionID(UniqueID):
    __slots__ = ()


class ActorClassID(UniqueID):
    __slots__ = ()


class ClusterID(UniqueID):
    __slots__ = ()


class JobID(BaseID):
    SIZE = JOB_BYTES
    __slots__ = ()

    @classmethod
    def from_int(cls, value: int) -> Self:
        return cls(value.to_bytes(JOB_BYTES, "little"))

    def int(self) -> int:
        return int.from_bytes(self._binary, "little")


class ActorID(BaseID):
    SIZE = ACTOR_BYTES
    __slots__ = ()

    @property
    def job_id(self) -> JobID:
        return JobID(self._binary[-JOB_BYTES:])


class TaskID(BaseID):
    SIZE = TASK_BYTES
    __slots__ = ()

    def actor_id(self) -> ActorID:
        return ActorID(actor_id_of(self._binary))

    def job_id(self) -> JobID:
        return JobID(self._binary[-JOB_BYTES:])


class PlacementGroupID(BaseID):
    SIZE = PLACEMENT_GROUP_BYTES
    __slots__ = ()


def actor_id(job_id: bytes) -> bytes:
    """A fresh actor id of a job."""
    return os.urandom(ACTOR_BYTES - JOB_BYTES) + job_id


def placement_group_id(job_id: bytes) -> bytes:
    """A fresh placement group id of a job."""
    return os.urandom(PLACEMENT_GROUP_BYTES - JOB_BYTES) + job_id


def object_id(task_id: bytes, index: int) -> bytes:
    """The id of return value `index` (from 1) of a task; put objects use a task id of their own."""
    return task_id + index.to_bytes(4, "little")


def actor_id_of(task_id: bytes) -> bytes:
    """The actor that a task calls or makes; for a plain task what stands in its place, see `is_actor`."""
    return task_id[TASK_BYTES - ACTOR_BYTES :]


def is_actor(actor_id: bytes) -> bool:
    """Whether it is an actor's id: in a plain task's, zeros stand before the job's."""
    return any(actor_id[: ACTOR_BYTES - JOB_BYTES])


def task_id_of(object_id: bytes) -> bytes:
    """The task whose return value this is."""
    return object_id[:TASK_BYTES]
