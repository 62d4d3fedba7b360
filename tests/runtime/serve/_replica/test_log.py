"""The replica's log file: text and JSON, the access log, the order of lines."""

import asyncio
import json
import logging
import pathlib
import re

import pytest

from runtime.serve import context
from runtime.serve._replica.log import NAME, ReplicaLog
from tests.runtime.serve._replica.stand_in import serving

logger = logging.getLogger(NAME)


@pytest.fixture
def log(tmp_path, monkeypatch):
    monkeypatch.setenv("RAY_SERVE_LOG_TO_STDERR", "0")
    replica = context.ReplicaID("abc", context.DeploymentID("Model", "app"))
    made = ReplicaLog(replica, str(tmp_path), {"node_id": "n"})
    yield made
    made.close()


def lines(log):
    return pathlib.Path(log.path).read_text().splitlines()


def request(request_id):
    return context._serve_request_context.set(context.RequestContext("/route", request_id, app_name="app"))


def test_text_lines_name_replica_and_request(log):
    log.configure(None)
    logger.info("without a request")
    token = request("r1")
    logger.warning("of %s", "one")
    log.access("GET", "/x", "200", 0.0123, "r1", "/route")
    context._serve_request_context.reset(token)
    logger.debug("not shown")
    logger.info("after")
    when = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3}"
    expected = [
        rf"INFO {when} app_Model abc -- without a request",
        rf"WARNING {when} app_Model abc r1 -- of one",
        rf"INFO {when} app_Model abc r1 -- GET /x 200 12\.3ms",
        rf"INFO {when} app_Model abc -- after",
    ]
    found = lines(log)
    assert len(found) == len(expected)
    for line, pattern in zip(found, expected, strict=True):
        assert re.fullmatch(pattern, line), line


def test_a_path_cannot_forge_a_line(log):
    log.configure(None)
    log.access("GET", "/x\nINFO forged é", "200", 0.0123, "r1", "/route")
    log.flush()
    (line,) = lines(log)
    assert line.endswith("r1 -- GET /x%0AINFO%20forged%20%C3%A9 200 12.3ms")


def test_json_lines_have_fields(log):
    log.configure({"encoding": "JSON", "additional_log_standard_attrs": ["name"]})
    token = request("r1")
    logger.info("hello", extra={"mine": 5})
    context._serve_request_context.reset(token)
    log.access("POST", "/x", "500", 0.001, "r2", "/route")
    log.flush()
    one, two = map(json.loads, lines(log))
    shared = {"deployment": "app_Model", "replica": "abc", "application": "app", "component_name": "replica"}
    assert (
        one.items()
        >= {**shared, "message": "hello", "mine": 5, "request_id": "r1", "route": "/route"}.items()
    )
    assert (
        one.items() >= {"levelname": "INFO", "name": NAME, "node_id": "n", "filename": "test_log.py"}.items()
    )
    assert (
        two.items()
        >= {**shared, "message": "POST /x 500 1.0ms", "request_id": "r2", "route": "/route"}.items()
    )


def test_levels_folders_and_no_access_log(log, tmp_path):
    log.configure({"log_level": "DEBUG", "logs_dir": str(tmp_path / "other"), "enable_access_log": False})
    logger.debug("shown")
    assert not log.access("GET", "/x", "200", 0.1, "r", "/")
    assert pathlib.Path(log.path).parent == tmp_path / "other"
    assert len(lines(log)) == 1
    log.configure({"log_level": "WARNING"})
    logger.info("not shown")
    assert not log.access("GET", "/x", "200", 0.1, "r", "/")
    assert not pathlib.Path(log.path).exists()


def test_a_handler_of_the_program_gets_the_access_log_too(log):
    class Handler(logging.Handler):
        def emit(self, record):
            seen.append(record.getMessage())

    seen = []
    log.configure(None)
    handler = Handler()
    logger.addHandler(handler)
    try:
        log.access("GET", "/x", "200", 0.001, "r", "/")
    finally:
        logger.removeHandler(handler)
    assert seen == ["GET /x 200 1.0ms"]


def test_requests_are_logged_with_their_errors(tmp_path, monkeypatch):
    monkeypatch.setenv("RAY_SERVE_LOG_TO_STDERR", "0")

    async def fail(request):
        logger.info("begins")
        raise ValueError("broken")

    async def main():
        async with serving(fail, folder=str(tmp_path)) as (_, caller):
            await caller.http("/some/path")

    asyncio.run(main())
    (file,) = tmp_path.iterdir()
    text = file.read_text()
    assert file.name == "replica_app_Deployment_abc.log"
    assert "id-1 -- begins" in text
    assert "ValueError: broken" in text
    assert "_replica/http.py" not in text
    assert re.search(r"id-1 -- GET /some/path 500 \d+\.\dms", text)
