"""What the head says of itself, or another program in its place."""

from __future__ import annotations

import pathlib

import pytest

from autoscaler.provider import Machine, MachineState
from clusterctl.doctor.collect import _ask_head
from clusterctl.doctor.facts import Api, Entry, Seen
from clusterctl.home import UP, Home, new_record
from clusterctl.providers import registry
from clusterctl.spec.load import load_text
from tests.clusterctl.answering import answering

SPEC = "cluster_name: c\nprovider: {type: local}\nhead_node_type: h\navailable_node_types: {h: {}}\n"
HEAD = Machine("m", MachineState.RUNNING, "h", {})


@pytest.mark.parametrize(
    ("status", "body", "says"),
    [
        (200, b"{}", Api.NOBODY),
        (502, b"<html>Bad Gateway", Api.NOBODY),
        (401, b'{"error": "the secret is wrong"}', Api.DENIED),
        (503, b'{"error": "the control store: it is coming back"}', Api.NO_CONTROL),
    ],
)
def test_who_answers_at_the_heads_port(tmp_path: pathlib.Path, status: int, body: bytes, says: Api) -> None:
    home = Home.find({"CLUSTERCTL_HOME": str(tmp_path / "h")})
    with answering(status, body) as url:
        record = new_record(home, load_text(SPEC), "c.yaml")
        record.state, record.api_url = UP, url
        home.write(record)
        home.new_secret("c")
        provider = registry.make(record.spec, record.cluster_id, record.provider_settings)
        found = _ask_head(home, record, provider, HEAD, {HEAD.id: Seen(Entry.OPEN)})
    assert found["api"] is says
