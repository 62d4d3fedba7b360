"""`serve.run` and what belongs to it, with everything that there is."""

from __future__ import annotations

import asyncio
import http.client
import logging
import os
import signal
import threading
from collections.abc import Iterator
from typing import Any

import pytest

import runtime
from runtime import serve
from runtime.serve._controller import connection
from runtime.serve.exceptions import RayServeException
from runtime.serve.handle import DeploymentHandle
from runtime.serve.schema import ApplicationStatus, DeploymentStatus, ProxyStatus, ReplicaState
from tests.polling import eventually

LIGHT: dict[str, Any] = {"ray_actor_options": {"num_cpus": 0}}


@serve.deployment(**LIGHT)
class Version:
    def __init__(self, version: Any = 1) -> None:
        self.version = version

    async def __call__(self, _: Any) -> str:
        return str(self.version)

    def get(self) -> Any:
        return self.version


@serve.deployment(**LIGHT)
class Sum:
    def __init__(self, *parts: Any, more: dict[str, Any]) -> None:
        self.parts = [*parts, *more.values()]

    async def __call__(self, _: Any) -> int:
        return int(sum([await part.get.remote() for part in self.parts]))


@pytest.fixture(scope="module")
def port(session: None) -> Iterator[int]:
    """Of the ingress, which is there for all tests of the module."""
    serve.start(http_options={"port": 0})
    (proxy,) = details()["proxies"].values()
    yield int(proxy["port"])
    serve.shutdown()
    assert serve.status() == serve.status().__class__()


def details() -> dict[str, Any]:
    controller = runtime.get_actor("SERVE_CONTROLLER_ACTOR", "serve")
    found: dict[str, Any] = runtime.get(controller.details.remote(), timeout=20)
    return found


def fetch(port: int, path: str = "/", headers: dict[str, str] | None = None) -> tuple[int, str]:
    client = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    client.request("GET", path, headers=headers or {})
    answer = client.getresponse()
    text = answer.read().decode()
    client.close()
    return answer.status, text


def test_an_application_runs_is_updated_and_deleted(port: int) -> None:
    handle = serve.run(Version.options(num_replicas=2).bind(1))
    assert handle.get.remote().result(timeout_s=20) == 1
    assert fetch(port) == (200, "1")
    status = serve.status()
    app = status.applications["default"]
    assert (app.status, app.message) == (ApplicationStatus.RUNNING, "")
    assert app.deployments["Version"].status is DeploymentStatus.HEALTHY
    assert app.deployments["Version"].replica_states[ReplicaState.RUNNING] == 2
    assert list(status.proxies.values()) == [ProxyStatus.HEALTHY]
    serve.run(Version.bind(2))
    assert eventually(lambda: fetch(port) == (200, "2"))
    assert serve.get_app_handle("default").get.remote().result(timeout_s=20) == 2
    serve.delete("default")
    assert serve.status().applications == {}
    assert eventually(lambda: fetch(port)[0] == 404)


def test_deployments_in_arguments_are_handles_of_one_application(port: int) -> None:
    shared = Version.bind(5)
    app = Sum.bind(shared, Version.bind(20), more={"x": Version.options(name="third").bind(300), "y": shared})
    serve.run(app, name="sum", route_prefix="/sum")
    assert fetch(port, "/sum") == (200, "330")
    assert set(serve.status().applications["sum"].deployments) == {"Sum", "Version", "Version_1", "third"}
    handle = serve.get_deployment_handle("Version_1", "sum")
    assert handle.get.remote().result(timeout_s=20) == 20
    with pytest.raises(RayServeException, match="no deployment 'nothing'"):
        serve.get_deployment_handle("nothing", "sum")
    with pytest.raises(RayServeException, match="needs app_name"):
        serve.get_deployment_handle("Version")
    with pytest.raises(RayServeException, match="'nothing' does not exist"):
        serve.get_app_handle("nothing")
    with pytest.raises(RayServeException, match="is being used by application 'sum'"):
        serve.run(Version.bind(), name="other", route_prefix="/sum")
    serve.delete("sum")


def test_several_applications_at_once(port: int) -> None:
    targets = [serve.RunTarget(Version.bind(n), f"app{n}", f"/{n}") for n in range(3)]
    handles = serve.run_many(targets)
    assert [handle.get.remote().result(timeout_s=20) for handle in handles] == [0, 1, 2]
    assert [fetch(port, f"/{n}")[1] for n in range(3)] == ["0", "1", "2"]
    for target in targets:
        serve.delete(target.name)


def test_what_cannot_run(port: int) -> None:
    @serve.deployment(**LIGHT)
    class Broken:
        def __init__(self) -> None:
            raise ValueError("no model here")

    with pytest.raises(RuntimeError, match=r"(?s)Deploying application 'broken' failed.*no model here"):
        serve.run(Broken.bind(), name="broken", route_prefix=None)
    assert serve.status().applications["broken"].status is ApplicationStatus.DEPLOY_FAILED
    serve.delete("broken")
    with pytest.raises(TypeError, match=r"Deployment.bind\(\)"):
        serve.run(Version)  # type: ignore[arg-type]
    for prefix in ("x", "/x/", "/{x}"):
        with pytest.raises(ValueError, match="route_prefix"):
            serve.run(Version.bind(), route_prefix=prefix)


@serve.deployment(**LIGHT)
class Configured:
    config: Any = None

    def reconfigure(self, config: Any) -> None:
        if config == "bad":
            raise ValueError("such a configuration is not known")
        self.config = config

    async def __call__(self, _: Any) -> str:
        return str(self.config)


def test_a_configuration_that_fails_leaves_the_only_replica_as_it_was(port: int) -> None:
    def run(config: str) -> None:
        serve.run(Configured.options(user_config=config).bind(), name="configured", route_prefix="/c")

    run("first")
    with pytest.raises(
        RuntimeError, match=r"(?s)goes on with the options before.*configuration is not known"
    ):
        run("bad")
    assert fetch(port, "/c") == (200, "first")
    assert serve.status().applications["configured"].status is ApplicationStatus.DEPLOY_FAILED
    run("third")
    assert fetch(port, "/c") == (200, "third")
    assert serve.status().applications["configured"].status is ApplicationStatus.RUNNING
    serve.delete("configured")


def test_what_waits_says_why(
    port: int, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "TELL_S", 0.05)
    monkeypatch.setattr(logging.getLogger("runtime"), "propagate", True)
    large = Version.options(ray_actor_options={"num_cpus": 1000}).bind()
    raised: list[BaseException] = []

    def run() -> None:
        try:
            serve.run(large, name="large", route_prefix="/large")
        except RuntimeError as error:
            raised.append(error)

    with caplog.at_level("INFO"):
        thread = threading.Thread(target=run)
        thread.start()
        assert eventually(lambda: "Application large waits: deployment Version is UPDATING" in caplog.text)
    with pytest.raises(TimeoutError, match="no replica that serves"):
        DeploymentHandle("Version", "large").remote(None).result(timeout_s=0.2)
    serve.delete("large")
    thread.join()
    assert "was deleted meanwhile" in str(raised[0])


@serve.deployment(**LIGHT, max_ongoing_requests=1)
class Endless:
    async def wait(self) -> None:
        await asyncio.Event().wait()

    async def get(self) -> str:
        return "free"


@serve.deployment(**LIGHT)
class Blocked:
    def __init__(self, endless: Any) -> None:
        self.endless = endless

    def __call__(self, _: Any) -> Any:
        return self.endless.wait.remote().result()


def test_the_time_limit_of_a_request_ends_what_its_sync_code_waits_for(port: int) -> None:
    serve.run(Blocked.bind(Endless.bind()), name="blocked", route_prefix="/blocked")
    assert fetch(port, "/blocked", {"x-request-timeout-seconds": "0.2"})[0] == 408
    assert serve.get_deployment_handle("Endless", "blocked").get.remote().result(timeout_s=20) == "free"
    serve.delete("blocked")


def test_no_request_fails_while_replicas_and_the_controller_are_replaced(port: int) -> None:
    serve.run(Version.options(num_replicas=2).bind(0), name="busy", route_prefix="/busy")
    stop, answers = threading.Event(), []

    def ask() -> None:
        while not stop.is_set():
            answers.append(fetch(port, "/busy"))

    threads = [threading.Thread(target=ask) for _ in range(3)]
    for thread in threads:
        thread.start()
    for version in range(4):
        serve.run(Version.options(num_replicas=2).bind(version), name="busy", route_prefix="/busy")
        os.kill(details()["controller_info"]["pid"], signal.SIGKILL)
        wanted = (200, str(version))
        assert eventually(lambda wanted=wanted: wanted in answers)
    stop.set()
    for thread in threads:
        thread.join()
    assert {status for status, _ in answers} == {200}
    assert {text for _, text in answers} == {"0", "1", "2", "3"}
    asyncio.run(serve.shutdown_async())
    serve.start(http_options={"port": port})


def test_an_application_in_this_process() -> None:
    handle = serve.run(Sum.bind(Version.bind(1), more={"x": Version.bind(2)}), _local_testing_mode=True)
    assert handle.remote(None).result(timeout_s=20) == 3
    serve.shutdown()
