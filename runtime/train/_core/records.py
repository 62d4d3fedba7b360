"""What the workers of a run tell its controller, and what it tells them. Pure.

Records travel in batches with the items of one generator call of each worker, in order (`runtime._extension.streams`).
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec


class Joined(msgspec.Struct, frozen=True, tag=True):
    """The rank is connected with the others. The first record. `pid`: of its process."""

    pid: int = 0


class Reported(msgspec.Struct, frozen=True, tag=True):
    """A rank's n-th report of an attempt.

    Attributes:
        number: from 0.
        metrics: pickled.
        checkpoint: the name of the checkpoint's folder; "": the report has none.
        is_waiting: the rank goes on when the report is committed.
        validation: pickled arguments of the validation; b"": none is wanted.
    """

    number: int
    metrics: bytes
    checkpoint: str = ""
    is_waiting: bool = False
    validation: bytes = b""


class Copied(msgspec.Struct, frozen=True, tag=True):
    """The value of the item that has this record, and no other, is a copy of the files that the rank has for its n-th
    report (`_run.near`). Comes before `Uploaded`."""

    number: int


class Uploaded(msgspec.Struct, frozen=True, tag=True):
    """The files that a rank has for its n-th report are in the storage. `part`: encoded (`manifest.PartManifest`)."""

    number: int
    part: bytes


class Asked(msgspec.Struct, frozen=True, tag=True):
    """A rank's n-th question of an attempt, which is answered when all ranks have asked it, with what all have said.

    `what`: must be the same on all ranks. `data`: of this rank.
    """

    number: int
    what: str
    data: bytes


class Wanted(msgspec.Struct, frozen=True, tag=True):
    """A rank wants the list of the checkpoints once its reports before `after` are committed, and, with `is_validated`,
    no validation is pending. Replaces an earlier one of the same number."""

    number: int
    after: int
    is_validated: bool = False


class Returned(msgspec.Struct, frozen=True, tag=True):
    """The training function has returned, or left because it was told to. The last record. `value`: pickled."""

    value: bytes = b""
    has_left: bool = False


Record = Joined | Reported | Copied | Uploaded | Asked | Wanted | Returned


class Committed(msgspec.Struct, frozen=True, tag=True):
    """To a rank: its reports before `count` are committed. `checkpoint`: the latest, pickled; b"": none."""

    count: int
    checkpoint: bytes


class Answered(msgspec.Struct, frozen=True, tag=True):
    """To a rank: the answer to its n-th `Asked` (`encoded`), or `Wanted` (pickled)."""

    number: int
    data: bytes
    is_list: bool = False


class Leaving(msgspec.Struct, frozen=True):
    """A machine that will be taken away. `ranks`: those on it. `deadline_ms`: when, in Unix time; None: nobody said."""

    ranks: list[int]
    deadline_ms: int | None = None


class Preempted(msgspec.Struct, frozen=True, tag=True):
    """To a rank: machines will be taken away. `nodes`: by node, in hex."""

    nodes: dict[str, Leaving]


Message = Committed | Answered | Preempted

_decoder = msgspec.msgpack.Decoder(list[Record])


def encoded(data: Sequence[bytes]) -> bytes:
    """What the ranks have said, as it travels."""
    return msgspec.msgpack.encode(data)


def decoded(data: bytes) -> list[bytes]:
    """The opposite of `encoded`."""
    return msgspec.msgpack.decode(data, type=list[bytes])


def encode(records: Sequence[Record]) -> bytes:
    """A batch as it travels."""
    return msgspec.msgpack.encode(records)


def decode(batch: bytes) -> list[Record]:
    """A batch of records."""
    return _decoder.decode(batch)
