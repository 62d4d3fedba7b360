"""What a type of provider means for specs: keys that it implies or cannot honour, and what Ray's files have for it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import yaml

from . import provider_names
from .definition import ClusterSpec
from .kinds import Struct
from .positions import Path, Problem
from .reader import Reader


@dataclass(frozen=True, slots=True, kw_only=True)
class RaysCloud:
    """What Ray's cluster YAML has for a cloud.

    Attributes:
        head_type: the head's node type where a file names none: the same as Ray's.
        implied: `node_config` of machines when a file names no node types: the same as Ray's.
        refused: keys of `provider` that cannot be honoured -> what to do.
        translate: changes the `node_config` at a path in place; returns what is to be said about it.
    """

    head_type: str
    implied: Mapping[str, str]
    refused: Mapping[str, str] = field(default_factory=dict)
    translate: Callable[[yaml.MappingNode, Path], list[Problem]] = lambda config, path: []


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderType:
    """A type of provider, as far as specs go.

    Attributes:
        node_config: what `node_config` may hold; None: that is the platform's own business, and its provider checks it.
        has_markets: `spot`, `zones` and `max_price` of node types mean something.
        implies_node_types: `available_node_types` may be missing.
        complete: writes what a document may leave out into it; returns what is missing. Runs on every document, before
            it is read, and leaves what it cannot understand for the reader to report.
        check: reports to the reader what the spec asks for and machines of this type cannot do.
        rays: for types that Ray has too.
    """

    node_config: type[Struct] | None = None
    has_markets: bool = True
    implies_node_types: bool = False
    complete: Callable[[yaml.MappingNode], list[Problem]] = lambda root: []
    check: Callable[[ClusterSpec, Reader], None] = lambda spec, reader: None
    rays: RaysCloud | None = None


def named(name: str) -> ProviderType:
    """The type of a name in `provider_names.NAMES`."""
    found = provider_names.entry(name)
    assert isinstance(found, ProviderType)
    return found


def everyone() -> dict[str, ProviderType]:
    """All types, by name."""
    return {name: named(name) for name in provider_names.NAMES}
