"""Changing the resources of a running node: not supported."""

from __future__ import annotations

from typing import NoReturn


def set_resource(resource_name: str, capacity: float, node_id: str | None = None) -> NoReturn:
    """Always raises: the resources of a node are set when it starts.

    Raises:
        DeprecationWarning: always.
    """
    raise DeprecationWarning(
        f"Dynamic custom resources are deprecated: {resource_name!r} cannot change while the node runs. "
        "Start a node with the resources instead, or reserve them with a placement group."
    )
