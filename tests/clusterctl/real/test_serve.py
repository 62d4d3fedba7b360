"""Serve over the API of a real head: a folder is uploaded, deployed, asked and ended."""

from __future__ import annotations

import pathlib
from collections.abc import Iterator

import pytest
import yaml

from tests.clusterctl.cli import Cli
from tests.polling import eventually

PROGRAM = """\
from runtime import serve

@serve.deployment(ray_actor_options={"num_cpus": 0})
class Where:
    def __call__(self, request):
        return open("data.txt").read()

app = Where.bind()
"""


@pytest.fixture
def cli(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cli]:
    for name in ("RAY_ADDRESS", "RAY_DASHBOARD_ADDRESS", "RAY_API_SERVER_ADDRESS"):
        monkeypatch.delenv(name, raising=False)
    cli = Cli(tmp_path)
    ran = cli.run("start", "--head", "--resources", '{"CPU": 1}')
    assert ran.status == 0, ran.err
    yield cli
    cli.run("start", "--stop")


def test_a_folder_is_deployed_from_here(cli: Cli) -> None:
    folder = cli.folder / "program"
    folder.mkdir()
    (folder / "served_program.py").write_text(PROGRAM)
    (folder / "data.txt").write_text("from the folder")
    config = {
        "http_options": {"host": "127.0.0.1", "port": 0},
        "applications": [
            {"import_path": "served_program:app", "runtime_env": {"working_dir": str(folder)}},
        ],
    }
    (cli.folder / "serve.yaml").write_text(yaml.safe_dump(config))
    ran = cli.run("serve", "deploy", "serve.yaml")
    assert ran.status == 0, ran.err

    def status() -> str:
        found = yaml.safe_load(cli.run("serve", "status").out)["applications"]
        return str(found["default"]["status"])

    eventually(lambda: status() == "RUNNING")
    assert yaml.safe_load(cli.run("serve", "config").out)["import_path"] == "served_program:app"
    ran = cli.run("serve", "deploy", "nothing:app", "--address", "http://127.0.0.1:1")
    assert ran.status == 1
    assert "127.0.0.1:1" in ran.err
    ran = cli.run("serve", "shutdown", "--yes")
    assert ran.status == 0, ran.err
    assert yaml.safe_load(cli.run("serve", "status").out)["applications"] == {}
