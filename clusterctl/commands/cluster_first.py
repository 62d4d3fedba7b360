"""`clusterctl exec NAME|FILE 'ls'`: the first word of a command means `--cluster` if it is the name of a known cluster,
or an existing YAML file.

A program, a node or a job of the same name is meant after `--`, or with `--cluster` before it.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence
from typing import Any

from .options import known_clusters
from .ray_options import RayOptions

_YAML = (".yaml", ".yml")
_BEHIND = frozenset({"--start", "--stop", "--down", "--tmux", "--screen", "--no-config-cache"})
_BEHIND_WITH_VALUE = frozenset({"-p", "--port-forward", "--cluster-name"})


def is_cluster_file(word: str) -> bool:
    """Whether a word of the command line names a cluster's YAML and nothing else."""
    return word.endswith(_YAML) and os.path.isfile(word)


def reordered(
    arguments: Sequence[str], known: Collection[str] = (), valued: Collection[str] = ()
) -> list[str]:
    """The arguments with the cluster's name or file, where it is the first word, as `--cluster NAME|FILE`.

    What follows may be in the order that Ray's users are used to: one word, then options.

    Args:
        known: names of clusters.
        valued: the command's options that take a value, which is no word.
    """
    place = _first_word(arguments, valued)
    if place is None:
        return list(arguments)
    cluster, rest = arguments[place], [*arguments[:place], *arguments[place + 1 :]]
    if not is_cluster_file(cluster) and cluster not in known:
        return list(arguments)
    if place == 0 and len(rest) > 1 and not rest[0].startswith("-"):
        if rest[1] == "--":  # its arguments follow
            del rest[1]
        elif _are_ours(rest[1:]):
            rest = [*rest[1:], rest[0]]
    return ["--cluster", cluster, *rest]


def _first_word(arguments: Sequence[str], valued: Collection[str]) -> int | None:
    """Where the first word is that is neither an option nor its value; None: there is none, or another option names the
    cluster."""
    place = 0
    while place < len(arguments):
        word = arguments[place]
        if word == "--" or word == "-c" or word.partition("=")[0] == "--cluster":
            return None
        if not word.startswith("-"):
            return place
        place += 2 if word in valued else 1
    return None


def _are_ours(words: Sequence[str]) -> bool:
    left = list(words)
    while left:
        word = left.pop(0)
        if word in _BEHIND_WITH_VALUE and left:
            left.pop(0)
        elif word not in _BEHIND:
            return False
    return True


class ClusterFirst(RayOptions):
    """A command that takes a cluster's name or YAML as its first word."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        words = self.without_rays(ctx, args)
        return super().parse_args(ctx, reordered(words, known_clusters(""), self.valued()))
