"""Which distributions a runtime has: all that ours requires, by way of others too."""

from __future__ import annotations

import importlib.metadata
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from importlib.metadata import Distribution

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

DISTRIBUTION = "clusterctl"
Find = Callable[[str], Distribution | None]


def ours(extras: Collection[str]) -> Requirement:
    """Our own distribution with these extras."""
    return Requirement(f"{DISTRIBUTION}[{','.join(sorted(extras))}]")


def installed(name: str) -> Distribution | None:
    """The distribution of that name that is installed here."""
    return in_folder(name)


def is_installed(extra: str) -> bool:
    """Whether all that an extra of ours leads to is installed here, in whatever version."""
    return all(installed(requirement.name) for requirement in closure([ours([extra])], installed)[1])


def in_folder(name: str, folder: str = "") -> Distribution | None:
    """The distribution of that name in a folder of packages; "": those of this Python."""
    path = [folder] if folder else sys.path
    return next(iter(importlib.metadata.distributions(name=name, path=path)), None)


def closure(
    requirements: Iterable[Requirement], find: Find, environment: Mapping[str, str] | None = None
) -> tuple[dict[str, Distribution], list[Requirement]]:
    """The distributions that these requirements and their own lead to, by normalized name, and the requirements that
    none of them meets.

    Args:
        find: the distribution of a name, if there is one.
        environment: the values of environment markers; None: those of this Python.
    """
    queue = [*requirements]
    found: dict[str, Distribution] = {}
    unmet: list[Requirement] = []
    seen: set[tuple[str, str]] = set()
    while queue:
        requirement = queue.pop(0)
        name = canonicalize_name(requirement.name)
        there = found.get(name) or find(name)
        if there is None or not requirement.specifier.contains(there.version, prereleases=True):
            unmet += [requirement] * (requirement not in unmet)
        if there is None:
            continue
        found[name] = there
        for extra in ("", *sorted(requirement.extras)):
            if (name, extra) not in seen:
                seen.add((name, extra))
                queue += _required(there, extra, environment)
    return found, unmet


def _required(
    distribution: Distribution, extra: str, environment: Mapping[str, str] | None
) -> Iterator[Requirement]:
    """What a distribution requires with an extra; "": without any. Markers are evaluated, and left out."""
    for line in distribution.requires or ():
        requirement = Requirement(line)
        marker, requirement.marker = requirement.marker, None
        if marker is None or marker.evaluate({**(environment or {}), "extra": extra}):
            yield requirement
