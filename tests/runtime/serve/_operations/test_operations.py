"""Configurations on a real session: the command line, the REST requests, and what becomes of the applications."""

from __future__ import annotations

import http.client
import json
import pathlib
from collections.abc import Iterator
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from runtime import serve
from runtime.serve._operations import rest
from runtime.serve._operations.cli import app as command_line
from runtime.serve.schema import ServeInstanceDetails
from tests.polling import eventually

PROGRAMS = "tests.runtime.serve._operations.programs"
APPLICATIONS = "/api/serve/applications/"


@pytest.fixture(scope="module")
def port(session: None) -> Iterator[int]:
    serve.start(http_options={"port": 0})
    (proxy,) = details().target_groups or ()
    yield int(proxy.targets[0].port)
    assert rest.answer("DELETE", APPLICATIONS, {}, b"").status == 200
    assert details().applications == {}


@pytest.fixture(autouse=True)
def clean(port: int) -> Iterator[None]:
    yield
    put()
    eventually(lambda: details().applications == {})


def details(**query: str) -> ServeInstanceDetails:
    answer = rest.answer("GET", APPLICATIONS, query, b"")
    assert answer.status == 200
    return ServeInstanceDetails.model_validate(json.loads(answer.text))


def put(*applications: dict[str, Any]) -> rest.Answer:
    return rest.answer("PUT", APPLICATIONS, {}, json.dumps({"applications": list(applications)}).encode())


def put_part(percent: float, *applications: dict[str, Any]) -> rest.Answer:
    body = {"applications": list(applications), "target_capacity": percent}
    return rest.answer("PUT", APPLICATIONS, {}, json.dumps(body).encode())


def app(name: str = "a", **more: Any) -> dict[str, Any]:
    return {"name": name, "import_path": f"{PROGRAMS}:single", "route_prefix": f"/{name}", **more}


def get(port: int, path: str) -> tuple[int, str]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    try:
        connection.request("GET", path)
        response = connection.getresponse()
        return response.status, response.read().decode()
    finally:
        connection.close()


def status(name: str = "a") -> str:
    found = (details().applications or {}).get(name)
    return "" if found is None else str(found.status.value)


def replicas(name: str = "a", deployment: str = "Greeter") -> list[str]:
    found = (details().applications or {})[name].deployments[deployment]
    return sorted(each.replica_id for each in found.replicas if each.state.value == "RUNNING")


def test_other_options_are_applied_in_place(port: int) -> None:
    assert put(app()).status == 200
    eventually(lambda: status() == "RUNNING")
    assert get(port, "/a") == (200, "hello")
    before = replicas()
    changed = {"name": "Greeter", "num_replicas": 2, "user_config": {"greeting": "bye"}}
    assert put(app(deployments=[changed])).status == 200
    eventually(lambda: status() == "RUNNING" and len(replicas()) == 2)
    assert set(before) < set(replicas())
    eventually(lambda: get(port, "/a") == (200, "bye"))
    found = (details().applications or {})["a"]
    assert found.deployed_app_config.deployments[0].num_replicas == 2
    assert found.deployments["Greeter"].deployment_config.max_ongoing_requests == 3
    assert details()._get_status().applications["a"].deployments["Greeter"].replica_states == {"RUNNING": 2}


def test_applications_that_are_not_named_are_deleted(port: int) -> None:
    put(app("a"), app("b", import_path=f"{PROGRAMS}:sized", args={"size": "2"}))
    eventually(lambda: status("a") == status("b") == "RUNNING")
    assert get(port, "/b") == (200, "hello hello")
    put(app("c", route_prefix="/a"))
    eventually(lambda: status("c") == "RUNNING" and not status("a") and not status("b"))
    assert get(port, "/a") == (200, "hello")
    assert details(api_type="imperative").applications == {}
    assert details().controller_info.actor_name == "SERVE_CONTROLLER_ACTOR"
    assert set(details(api_type="declarative").applications or {}) == {"c"}


def test_a_failed_import_has_its_traceback_in_the_status(port: int) -> None:
    put(app(import_path="no_such_module:app"))
    eventually(lambda: status() == "DEPLOY_FAILED")
    message = (details().applications or {})["a"].message
    assert "no_such_module:app" in message
    assert "ModuleNotFoundError: No module named 'no_such_module'" in message


def test_options_of_a_deployment_that_is_not_there(port: int) -> None:
    put(app(deployments=[{"name": "Nobody", "num_replicas": 2}]))
    eventually(lambda: status() == "DEPLOY_FAILED")
    assert "has no deployment Nobody" in (details().applications or {})["a"].message


def test_wrong_requests(port: int) -> None:
    assert put({"name": "a"}) == rest.Answer(
        400, "applications[0] (a): import_path must have the form module:name, not ''."
    )
    assert rest.answer("PUT", APPLICATIONS, {}, b"{").status == 400
    assert rest.answer("GET", APPLICATIONS, {"api_type": "unknown"}, b"").status == 400
    assert rest.answer("PATCH", APPLICATIONS, {}, b"").status == 404


def scale(name: str, deployment: str, body: bytes) -> tuple[int, Any]:
    answer = rest.answer("POST", f"/api/v1/applications/{name}/deployments/{deployment}/scale", {}, body)
    return answer.status, answer.body


def test_scaling_from_outside(port: int) -> None:
    put(app("a"), app("b", external_scaler_enabled=True))
    eventually(lambda: status("a") == status("b") == "RUNNING")
    assert scale("b", "Greeter", b'{"target_num_replicas": 2}')[0] == 200
    eventually(lambda: len(replicas("b")) == 2)
    assert scale("a", "Greeter", b'{"target_num_replicas": 2}')[0] == 412
    assert scale("b", "Nobody", b'{"target_num_replicas": 2}')[0] == 404
    assert scale("b", "Greeter", b"{}") == (
        400,
        {"error": "Invalid request body: target_num_replicas is missing."},
    )


def test_what_build_writes_can_be_deployed(port: int, tmp_path: pathlib.Path) -> None:
    runner = CliRunner()
    file = str(tmp_path / "serve.yaml")
    done = runner.invoke(command_line, ["build", f"{PROGRAMS}:app", "-o", file])
    assert done.exit_code == 0, done.output
    config = yaml.safe_load(pathlib.Path(file).read_text())
    options = {each["name"]: each for each in config["applications"][0]["deployments"]}
    assert options["Greeter"] == {
        "name": "Greeter",
        "max_ongoing_requests": 3,
        "ray_actor_options": {"num_cpus": 0},
    }
    done = runner.invoke(command_line, ["run", file, "--non-blocking"])
    assert done.exit_code == 0, done.output
    assert "Application app1: RUNNING" in done.stderr
    assert get(port, "/") == (200, "front")


def test_run_of_an_import_path(port: int) -> None:
    words = [
        "run",
        f"{PROGRAMS}:sized",
        "size=3",
        "--name",
        "one",
        "--route-prefix",
        "/one",
        "--non-blocking",
    ]
    done = CliRunner().invoke(command_line, words)
    assert done.exit_code == 0, done.output
    assert get(port, "/one") == (200, "hello hello hello")
    serve.delete("one")


def test_a_part_of_the_replicas_and_then_all(port: int) -> None:
    four = app(deployments=[{"name": "Greeter", "num_replicas": 4}])
    assert put_part(-1, four).status == 400
    assert put_part(50, four).status == 200
    eventually(lambda: status() == "RUNNING")
    half = replicas()
    assert len(half) == 2
    assert serve.status().target_capacity == details().target_capacity == 50
    assert put_part(100, four).status == 200
    eventually(lambda: status() == "RUNNING" and len(replicas()) == 4)
    assert set(half) < set(replicas())
    assert put_part(0, four).status == 200
    eventually(lambda: status() == "RUNNING" and not replicas())
    assert put_part(50, four).status == 200
    eventually(lambda: status() == "RUNNING" and len(replicas()) == 2)
    assert get(port, "/a")[0] == 200
