"""`clusterctl submit`: which cluster is meant, and in which order the head is told."""

from __future__ import annotations

import json
import pathlib
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest
from typer.testing import CliRunner

from clusterctl.app import app
from clusterctl.commands import opened_cluster
from clusterctl.home import UP, ClusterRecord, Home, new_record
from clusterctl.spec.load import load_text

SPEC = "cluster_name: {name}\nprovider: {{type: local}}\nhead_node_type: head\navailable_node_types: {{head: {{}}}}\n"


class Head(BaseHTTPRequestHandler):
    """An API that has every package, refuses every job, and notes what it is told to change."""

    told: list[str]

    def answer(self, status: int, value: object) -> None:
        if self.command != "GET":
            self.told.append(f"{self.command} {self.path}")
        self.rfile.read(int(self.headers["Content-Length"] or 0))
        body = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self) -> None:
        self.answer(200, {})

    def do_PUT(self) -> None:
        self.answer(200, {"accepted": True})

    def do_POST(self) -> None:
        self.answer(400, {"error": "there is a job of this name"})

    def log_message(self, *words: object) -> None:
        pass


@pytest.fixture
def told() -> Iterator[tuple[str, list[str]]]:
    """A head's address, and what it was told."""
    notes: list[str] = []
    server = HTTPServer(("127.0.0.1", 0), type("Noting", (Head,), {"told": notes}))
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}", notes
    server.shutdown()
    thread.join()
    server.server_close()


def known(tmp_path: pathlib.Path, url: str) -> tuple[Home, CliRunner, str]:
    """A cluster `c` that is up, the command line that knows it, and a program."""
    home = Home.find({"CLUSTERCTL_HOME": str(tmp_path / "h")})
    record = new_record(home, load_text(SPEC.format(name="c")), "c.yaml")
    record.state, record.api_url = UP, url
    home.write(record)
    home.new_secret("c")
    script = tmp_path / "work" / "job.py"
    script.parent.mkdir()
    script.write_text("print(1)\n")
    return home, CliRunner(env={"CLUSTERCTL_HOME": str(home.root), "COLUMNS": "200"}), str(script)


def test_a_cluster_file_in_front_says_which_cluster_is_meant(tmp_path: pathlib.Path) -> None:
    cli = CliRunner(env={"CLUSTERCTL_HOME": str(tmp_path / "h"), "COLUMNS": "200"})
    spec = tmp_path / "c.yaml"
    spec.write_text(SPEC.format(name="nowhere"))
    result = cli.invoke(app, ["submit", str(spec), "job.py", "3"])
    assert result.exit_code == 3
    assert "there is no cluster 'nowhere'" in result.output


def test_no_job_begins_whose_cluster_could_not_be_ended(
    tmp_path: pathlib.Path, told: tuple[str, list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(opened_cluster, "_PATIENCE_S", 0.0)
    url, notes = told
    home, cli, script = known(tmp_path, url)
    with home.locked("c", "up"):
        result = cli.invoke(app, ["submit", "-c", "c", "--down", script])
    assert result.exit_code == 4
    assert "being changed by `clusterctl up`" in result.output
    assert notes == []


def test_the_head_is_told_of_the_end_before_the_job(
    tmp_path: pathlib.Path, told: tuple[str, list[str]]
) -> None:
    url, notes = told
    _, cli, script = known(tmp_path, url)
    result = cli.invoke(app, ["submit", "-c", "c", "--down", script])
    assert result.exit_code == 2
    assert notes == ["PUT /api/autostop", "POST /api/jobs/"]
    assert "there is a job of this name" in result.output
    assert "by itself when nothing has used it for 5 min" in result.output


def test_who_waits_is_told_which_command_was_typed(
    tmp_path: pathlib.Path, told: tuple[str, list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    url, _ = told
    _, cli, script = known(tmp_path, url)
    holders: list[str] = []
    write = Home.write

    def note(self: Home, record: ClusterRecord) -> None:
        holders.append(self.changed_by("c"))
        write(self, record)

    monkeypatch.setattr(Home, "write", note)
    cli.invoke(app, ["submit", "-c", "c", "--down", script])
    assert [holder.partition(" (")[0] for holder in holders] == ["`clusterctl submit`"]
