"""What the objects of a node take, by job and by tag. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from .ids import job_of_object
from .store_index import StoredObject

MAX_TAGS = 1_000
"""How many tags are told of; names of tasks may be of any number."""


class Held(NamedTuple):
    """An object that is both in memory and in a file counts as both."""

    memory_bytes: int
    disk_bytes: int
    objects: int

    def plus(self, entry: StoredObject) -> Held:
        """With one more object."""
        return Held(
            self.memory_bytes + entry.size_bytes * (entry.offset is not None),
            self.disk_bytes + entry.size_bytes * bool(entry.file),
            self.objects + 1,
        )


class Use(NamedTuple):
    """`in_memory`: the number of objects there. `jobs`: all objects. `tags`: those that were made on this node."""

    in_memory: int
    jobs: dict[bytes, Held]
    tags: dict[str, Held]

    def largest_tags(self) -> list[tuple[str, Held]]:
        """Those that hold most bytes, at most `MAX_TAGS`."""
        ranked = sorted(self.tags.items(), key=lambda item: -item[1].memory_bytes - item[1].disk_bytes)
        return ranked[:MAX_TAGS]


def use_of(entries: Iterable[StoredObject]) -> Use:
    """What these objects take together."""
    nothing = Held(0, 0, 0)
    jobs: dict[bytes, Held] = {}
    tags: dict[str, Held] = {}
    in_memory = 0
    for entry in entries:
        in_memory += entry.offset is not None
        job_id = job_of_object(entry.object_id)
        jobs[job_id] = jobs.get(job_id, nothing).plus(entry)
        if entry.primary:
            tags[entry.tag] = tags.get(entry.tag, nothing).plus(entry)
    return Use(in_memory, jobs, tags)
