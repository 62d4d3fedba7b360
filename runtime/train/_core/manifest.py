"""What a checkpoint consists of. Pure."""

from __future__ import annotations

import msgspec


class PartManifest(msgspec.Struct, frozen=True):
    """The files of one rank.

    Attributes:
        rank: whose.
        files: sizes in bytes by path within the checkpoint.
        path: where they are, if not in the run's folder.
    """

    rank: int
    files: dict[str, int]
    path: str = ""
