"""What commands begin with: a cluster that has ended by itself, and `--start`, which brings one up."""

from __future__ import annotations

import json
import pathlib

import pytest

from clusterctl.commands import session, up
from clusterctl.errors import NotFound
from clusterctl.home import UP, Home, new_record
from clusterctl.launcher import notice
from clusterctl.spec.load import load_text
from tests.clusterctl.answering import answering

SPEC = "cluster_name: c\nprovider: {type: local}\nhead_node_type: h\navailable_node_types: {h: {}}\n"


@pytest.mark.parametrize("is_ours", [True, False])
def test_a_cluster_whose_port_another_program_has_does_not_run(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, is_ours: bool
) -> None:
    monkeypatch.setenv("CLUSTERCTL_HOME", str(tmp_path / "h"))
    brought_up: list[str] = []
    monkeypatch.setattr(up, "bring_up", lambda file, agreed, cluster_name: brought_up.append(file))
    home = Home.find()
    record = new_record(home, load_text(SPEC), str(tmp_path / "c.yaml"))
    who = record.cluster_id if is_ours else "other"
    with answering(200, json.dumps({"cluster_id": who}).encode()) as url:
        record.state, record.api_url = UP, url
        home.write(record)
        home.new_secret("c")
        session.started("c")
    assert brought_up == ([] if is_ours else [record.spec_file])


def left_alone(tmp_path: pathlib.Path, url: str) -> session.Session:
    """A cluster that may have ended by itself, without machines."""
    home = Home.find({"CLUSTERCTL_HOME": str(tmp_path / "h")})
    record = new_record(home, load_text(SPEC), str(tmp_path / "c.yaml"))
    record.state, record.api_url, record.stops_itself = UP, url, True
    home.write(record)
    home.new_secret("c")
    return session.Session(home, record)


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
