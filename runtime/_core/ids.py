"""Identifiers: fixed-length byte strings with Ray's lengths. On the wire and in tables they are plain `bytes`.

An actor id is 12 random bytes, the first with its top bit set, and the job id. A task id is an 8-byte number and 16
bytes that tell its kind:

- a call of an actor: the actor's id;
- a plain task, or a value that is put: a mark below 0x80, 11 random bytes of the process, and the job id.

An object id is its task's id and a 4-byte index. A process counts its numbers up from a random one (`TaskIds`). So two
processes share the id of a call only if their counts overlap in 2**63 numbers, and of anything else only if 11 random
bytes agree as well.
"""

from __future__ import annotations

import itertools
import os
from typing import ClassVar, Self

JOB_BYTES = 4
ACTOR_BYTES = 16
TASK_BYTES = 24
OBJECT_BYTES = 28
CREATION_PREFIX = b"\xff" * 8
"""How the ids of actors' constructor calls begin; the results of these count the handles. `TaskIds` stays below."""
MAX_STREAM_ITEMS = 2**32 - 1000
"""How many values one generator may yield: an index has 4 bytes. The caller needs a few indices more for the end."""
UNIQUE_BYTES = 28
PLACEMENT_GROUP_BYTES = 18

_NUMBER_BYTES = TASK_BYTES - ACTOR_BYTES
_MARK_AT = _NUMBER_BYTES
_TASK, _PUT, _ACTOR_BIT = 0x00, 0x01, 0x80


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


def job_of_object(binary: bytes) -> bytes:
    """The job whose task makes an object."""
    return binary[TASK_BYTES - JOB_BYTES : TASK_BYTES]


def actor_id(job_id: bytes) -> bytes:
    """A fresh actor id of a job."""
    made = os.urandom(ACTOR_BYTES - JOB_BYTES)
    return bytes((made[0] | _ACTOR_BIT,)) + made[1:] + job_id


def placement_group_id(job_id: bytes) -> bytes:
    """A fresh placement group id of a job."""
    return os.urandom(PLACEMENT_GROUP_BYTES - JOB_BYTES) + job_id


def object_id(task_id: bytes, index: int) -> bytes:
    """The id of return value `index` (from 1) of a task."""
    return task_id + index.to_bytes(4, "little")


def actor_id_of(task_id: bytes) -> bytes:
    """The actor that a task calls or makes. For a plain task it is no actor's id, see `is_actor`."""
    return task_id[TASK_BYTES - ACTOR_BYTES :]


def is_actor(actor_id: bytes) -> bool:
    """Whether this part of a task id is an actor's id."""
    return actor_id[0] & _ACTOR_BIT != 0


def is_put(object_id: bytes) -> bool:
    """Whether the object was put, and is no result of a task."""
    return object_id[_MARK_AT] == _PUT


def task_id_of(object_id: bytes) -> bytes:
    """The task whose return value this is."""
    return object_id[:TASK_BYTES]


class TaskIds:
    """Makes the ids of what one process submits and puts. Thread-safe. A forked process needs one of its own."""

    __slots__ = ("_numbers", "_put_suffix", "_task_suffix")

    def __init__(self, job_id: bytes) -> None:
        # From the lower half of all numbers: they never run out. Many threads put at once: `count` is atomic.
        self._numbers = itertools.count(int.from_bytes(os.urandom(_NUMBER_BYTES), "big") >> 1)
        process = os.urandom(ACTOR_BYTES - JOB_BYTES - 1)
        self._task_suffix = bytes((_TASK,)) + process + job_id
        self._put_suffix = object_id(bytes((_PUT,)) + process + job_id, 1)

    def task(self) -> bytes:
        """A fresh id of a plain task."""
        return next(self._numbers).to_bytes(_NUMBER_BYTES, "big") + self._task_suffix

    def call(self, actor_id: bytes) -> bytes:
        """A fresh id of a call of an actor."""
        return next(self._numbers).to_bytes(_NUMBER_BYTES, "big") + actor_id

    def put(self) -> bytes:
        """A fresh id of an object that is put."""
        return next(self._numbers).to_bytes(_NUMBER_BYTES, "big") + self._put_suffix

    def site_of(self, _object_id: bytes) -> str:
        """Where in the program a reference was made: "kind | file:function:line | ...", the last call first; "" if that
        is not recorded."""
        return ""
