"""What commands begin with: a cluster that may have ended by itself."""

from __future__ import annotations

import pathlib

import pytest

from clusterctl.commands import opened_cluster
from clusterctl.errors import NotFound
from clusterctl.home import UP, Home, new_record
from clusterctl.launcher import notice
from clusterctl.spec.load import load_text
from tests.clusterctl.answering import answering

SPEC = "cluster_name: c\nprovider: {type: local}\nhead_node_type: h\navailable_node_types: {h: {}}\n"


def left_alone(tmp_path: pathlib.Path, url: str) -> opened_cluster.OpenedCluster:
    """A cluster that may have ended by itself, without machines."""
    home = Home.find({"CLUSTERCTL_HOME": str(tmp_path / "h")})
    record = new_record(home, load_text(SPEC), str(tmp_path / "c.yaml"))
    record.state, record.api_url, record.stops_itself = UP, url, True
    home.write(record)
    home.new_secret("c")
    return opened_cluster.OpenedCluster(home, record)


@pytest.mark.parametrize(("status", "body"), [(200, b"<html>"), (200, b"{}"), (502, b"Bad Gateway")])
def test_a_cluster_has_ended_by_itself_also_where_another_program_has_its_port(
    tmp_path: pathlib.Path, status: int, body: bytes
) -> None:
    with answering(status, body) as url:
        opened = left_alone(tmp_path, url)
        with pytest.raises(NotFound, match="has ended by itself"):
            opened.api()
    assert opened.home.read("c") is None


def test_a_head_that_cannot_answer_now_has_not_failed(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(notice, "notice", lambda home, record, provider: notice.Fate.UNKNOWN)
    with answering(503, b'{"error": "the control store: it is coming back"}') as url:
        left_alone(tmp_path, url).api().close()
