from __future__ import annotations

import pathlib

from typer.testing import CliRunner

from clusterctl.app import app


def test_a_cluster_file_in_the_programs_place_is_explained(tmp_path: pathlib.Path) -> None:
    cli = CliRunner(env={"CLUSTERCTL_HOME": str(tmp_path / "h"), "COLUMNS": "200"})
    result = cli.invoke(app, ["submit", "c.yaml", "job.py", "3"])
    assert result.exit_code == 2
    assert "c.yaml describes a cluster" in result.output
    assert "clusterctl submit --cluster c.yaml job.py 3" in result.output
