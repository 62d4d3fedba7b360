"""Which worker ends when a node runs low on memory. Pure.

Workers of the same owner form a group, those whose work can be repeated apart from those whose cannot. The newest
worker of the largest group of repeatable work goes first: most work is kept, and each owner keeps one worker that makes
progress. The last worker of a group gains nothing by being repeated: its work fails.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec


class Holder(msgspec.Struct, frozen=True):
    """A busy worker. `worker` is opaque here; `since_s`: when its work began."""

    worker: Any
    owner: bytes
    retriable: bool
    since_s: float


class Victim(msgspec.Struct, frozen=True):
    """The worker to end, and whether its work is to be repeated."""

    worker: Any
    retry: bool


def choose(holders: Iterable[Holder]) -> Victim | None:
    """The worker to end; None if there is none."""
    groups: dict[tuple[bool, bytes], list[Holder]] = {}
    for holder in holders:
        groups.setdefault((holder.retriable, holder.owner), []).append(holder)
    if not groups:
        return None
    (retriable, _), members = max(
        groups.items(), key=lambda item: (item[0][0], len(item[1]), max(h.since_s for h in item[1]))
    )
    newest = max(members, key=lambda holder: holder.since_s)
    return Victim(newest.worker, retriable and len(members) > 1)
