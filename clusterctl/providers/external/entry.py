"""What the launcher knows of external providers."""

from __future__ import annotations

from collections.abc import Mapping

from clusterctl.spec.definition import ClusterSpec
from clusterctl.spec.reader import Reader

from ..protocol import Entry, ForHead, OperatorProvider, Seat
from . import loading
from .config import CLASS_PATH, ExternalProvider


def _make(spec: ClusterSpec, cluster_id: str, settings: Mapping[str, str], seat: Seat) -> OperatorProvider:
    return loading.load(_config(spec), settings)(spec, cluster_id, settings, seat)


def _for_head(spec: ClusterSpec, provider: OperatorProvider) -> ForHead:
    """With the provider's module."""
    given = provider.for_head()
    return ForHead(
        {**given.settings, **loading.settings_for_head()},
        (*given.files, *loading.files_for_head(_config(spec))),
    )


def _check(spec: ClusterSpec, reader: Reader) -> None:
    path = _config(spec).class_path
    if not CLASS_PATH.fullmatch(path):
        words = f"'{path}' does not name a class; write package.module:Class"
        reader.problem_at(("provider", "class"), words)


def _config(spec: ClusterSpec) -> ExternalProvider:
    assert isinstance(spec.provider, ExternalProvider)
    return spec.provider


ENTRY = Entry(make=_make, for_head=_for_head, check=_check)
