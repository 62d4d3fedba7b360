"""A checkpoint's files in the object stores of the nodes, so that a restart does not wait for a remote storage.

The storage has the truth: it is asked which files the checkpoint has, and a copy counts only if its size and hash are
those of the manifest.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from pickle import PickleBuffer

import runtime
from runtime._extension import store
from runtime.exceptions import RayError
from runtime.object_ref import ObjectRef
from runtime.train._core.manifest import PartManifest
from runtime.train._run.files import Files

_log = logging.getLogger(__name__)

STORE_SHARE = 4
"""A copy takes at most 1/STORE_SHARE of what is free in the node's object store."""
FETCH_S = 60.0
"""How long a copy on another node is waited for."""


class NearFiles:
    """The copies of a checkpoint's files.

    Args:
        copies: the results of `copied` of the ranks.
    """

    def __init__(self, copies: Sequence[ObjectRef]) -> None:
        self._copies = list(copies)

    def read(self) -> Mapping[str, memoryview]:
        """The files by path within the checkpoint, as far as their copies are still there."""
        found: dict[str, memoryview] = {}
        for copy in [*self._copies]:
            try:
                files = runtime.get(copy, timeout=FETCH_S)
                found.update({inner: memoryview(data) for inner, data in files.items()})
            except RayError as error:
                _log.info("A copy of a checkpoint is gone; the storage is read instead. %s", error)
        return found

    def release(self) -> None:
        """The copies are not needed any more: there is a later checkpoint."""
        self._copies.clear()


def copied(
    source: Files, path: str, part: PartManifest, limit_bytes: int
) -> Mapping[str, PickleBuffer] | None:
    """The files of a rank, as a value that the object store maps rather than copies when it is read.

    Args:
        source, path: the folder that has them.
        part: their names and sizes.
        limit_bytes: of all files together.

    Returns:
        None: they are too large, not there any more, or not local.
    """
    if not source.is_local or not 0 < part.size_bytes <= limit_bytes:
        return None
    own = store.stores(everywhere=False)[0]
    if part.size_bytes > (own.free_bytes + own.evictable_bytes) // STORE_SHARE:
        return None
    try:
        return {inner: PickleBuffer(source.read(f"{path}/{inner}")) for inner in sorted(part.files)}
    except OSError:  # the program has removed them meanwhile
        return None
