"""What experiment and runner tell each other. Pure."""

from __future__ import annotations

from typing import Any

import msgspec

from .trial import Saved


class Assignment(msgspec.Struct, frozen=True):
    """A trial for a runner.

    Attributes:
        trial_id, name: of the trial.
        config: what the trainable gets.
        path: of the trial's folder below the experiment's.
        tag: the experiment tag.
        resources: of the trial, as bundles.
        beginning: the checkpoint that it begins with.
        checkpoint_number: of its next checkpoint.
    """

    trial_id: str
    name: str
    config: dict[str, Any]
    path: str
    tag: str
    resources: Any
    beginning: Saved | None
    checkpoint_number: int


class Batch(msgspec.Struct, frozen=True):
    """What a runner has to tell.

    Attributes:
        results: in their order, each with the checkpoint that came with it.
        has_returned: the function has returned after them.
    """

    results: list[tuple[dict[str, Any], Saved | None]]
    has_returned: bool = False
