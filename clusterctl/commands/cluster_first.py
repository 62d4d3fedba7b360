"""`clusterctl exec cluster.yaml 'ls'`: an existing YAML file as the first word means `--cluster FILE`."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from typer.core import TyperCommand

_YAML = (".yaml", ".yml")
_BEHIND = frozenset({"--start", "--stop", "--down", "--tmux", "--screen"})
_BEHIND_WITH_VALUE = frozenset({"-p", "--port-forward"})


def is_cluster_file(word: str) -> bool:
    """Whether a word of the command line names a cluster's YAML and nothing else."""
    return word.endswith(_YAML) and os.path.isfile(word)


def reordered(arguments: Sequence[str]) -> list[str]:
    """The arguments with a leading cluster file as `--cluster FILE`.

    What follows may be in the order that Ray's users are used to: one word, then options.
    """
    if not arguments or not is_cluster_file(arguments[0]):
        return list(arguments)
    file, *rest = arguments
    if len(rest) > 1 and not rest[0].startswith("-"):
        if rest[1] == "--":  # its arguments follow
            del rest[1]
        elif _are_ours(rest[1:]):
            rest = [*rest[1:], rest[0]]
    return ["--cluster", file, *rest]


def _are_ours(words: Sequence[str]) -> bool:
    left = list(words)
    while left:
        word = left.pop(0)
        if word in _BEHIND_WITH_VALUE and left:
            left.pop(0)
        elif word not in _BEHIND:
            return False
    return True


class ClusterFirst(TyperCommand):
    """A command that takes a cluster's YAML as its first word."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        return super().parse_args(ctx, reordered(args))
