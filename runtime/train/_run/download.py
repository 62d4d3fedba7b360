"""From a storage to a local folder."""

from __future__ import annotations

import os
import threading
import zlib
from collections import deque
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from runtime.train._api.exceptions import StorageError
from runtime.train._core import manifest
from runtime.train._run.calls import Watch
from runtime.train._run.files import Files, LocalFiles, copy, draft_in

if TYPE_CHECKING:
    from runtime.train._run.near import NearFiles

AT_ONCE = 8
"""Files that are copied at the same time from or to a remote storage."""


def download(source: Files, path: str, target: str, watch: Watch, near: NearFiles | None = None) -> None:
    """Copies a checkpoint's files into a local folder, without its manifest, and compares them with that.

    Args:
        near: copies in the object stores. The storage is read for files whose copy is missing or differs.

    Raises:
        StorageError: they are damaged.
    """
    local = LocalFiles()
    sizes = watch.retried(lambda: source.walk(path))
    expected: Mapping[str, manifest.FileRecord] = {}
    if manifest.NAME in sizes:
        try:
            expected = manifest.decode(watch.retried(lambda: source.read(f"{path}/{manifest.NAME}"))).files
            del sizes[manifest.NAME]
        except manifest.InvalidManifest:
            pass  # a file of the user
    damaged = manifest.differences(expected, sizes)
    local.make_folder(target)
    copies: Mapping[str, memoryview] = near.read() if near is not None and expected and not damaged else {}

    def one(inner: str) -> None:
        if inner in copies and _record(copies[inner]) == expected.get(inner):
            with local.create(os.path.join(target, inner), len(copies[inner]), draft_in(target)) as file:
                file.write(copies[inner])
            return
        record = watch.retried(
            lambda: copy(
                source,
                f"{path}/{inner}",
                local,
                os.path.join(target, inner),
                sizes[inner],
                draft_in(target),
                watch.beat,
            )
        )
        wanted = expected.get(inner)
        if wanted is not None and wanted.crc32 not in (None, record.crc32):
            damaged.append(f"{inner} has other content than was written")

    if not damaged:
        each(one, sorted(sizes), 1 if source.is_local else AT_ONCE)
    if damaged:
        raise StorageError(
            "read", path, f"it is damaged: {'; '.join(damaged[:5])}", "Use another checkpoint."
        )


def _record(data: memoryview) -> manifest.FileRecord:
    return manifest.FileRecord(data.nbytes, zlib.crc32(data))


def each(work: Callable[[str], None], paths: list[str], at_once: int) -> None:
    """Does something with each path, several at once. The first error ends it."""
    if at_once == 1 or len(paths) < 2:
        for path in paths:
            work(path)
        return
    left = deque(paths)
    errors: list[BaseException] = []

    def run() -> None:
        while not errors and left:
            try:
                path = left.popleft()
            except IndexError:
                return  # another thread took the last one
            try:
                work(path)
            except BaseException as error:
                errors.append(error)

    # Threads of an executor would be waited for when the process ends, also if the storage hangs.
    threads = [threading.Thread(target=run, name="storage", daemon=True) for _ in range(at_once)]
    for thread in threads[: len(paths)]:
        thread.start()
    for thread in threads[: len(paths)]:
        thread.join()
    if errors:
        raise errors[0]
