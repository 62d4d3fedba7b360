"""`--start`, which brings a cluster up before a command."""

from __future__ import annotations

import json
import pathlib

import pytest

from clusterctl.commands import starting, up
from clusterctl.home import UP, Home, new_record
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
        starting.started("c")
    assert brought_up == ([] if is_ours else [record.spec_file])
