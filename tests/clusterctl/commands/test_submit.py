"""`clusterctl submit` with a cluster's YAML as its first word."""

from __future__ import annotations

import pathlib

from typer.testing import CliRunner

from clusterctl.app import app


def test_a_cluster_file_in_front_says_which_cluster_is_meant(tmp_path: pathlib.Path) -> None:
    cli = CliRunner(env={"CLUSTERCTL_HOME": str(tmp_path / "h"), "COLUMNS": "200"})
    spec = tmp_path / "c.yaml"
    spec.write_text(
        "cluster_name: nowhere\nprovider: {type: local}\nhead_node_type: head\navailable_node_types: {head: {}}\n"
    )
    result = cli.invoke(app, ["submit", str(spec), "job.py", "3"])
    assert result.exit_code == 3
    assert "there is no cluster 'nowhere'" in result.output
