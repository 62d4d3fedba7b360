"""The controller as an actor, with real processes; its replicas serve nobody (`standin`)."""

from __future__ import annotations

import os
import pathlib
import signal
from collections.abc import Iterator
from typing import Any

import pytest

import runtime
from runtime import serve
from runtime.experimental.internal_kv import _internal_kv_list
from runtime.serve._build import build
from runtime.serve._controller.actor import Options, ServeControllerActor, fits_somewhere
from runtime.serve._core.controller import DeployFailed, Refused
from runtime.serve._core.published import CONTROLLER, NAMESPACE, Demand, load_targets, targets_key
from runtime.serve._core.requests import Configure
from runtime.util.placement_group import placement_group_table
from tests.polling import eventually

MODULE = "tests.runtime.serve._controller.standin"
OPTIONS = Options(f"{MODULE}:Replica", f"{MODULE}:Ingress", (MODULE,))
START = Configure({"host": "127.0.0.1", "port": 8000}, {}, "EveryNode")


class Model:
    """Does what a file tells it."""

    def __init__(self, version: int = 1, flag: str = "") -> None:
        self._flag = flag
        if flag and pathlib.Path(flag).exists() and "constructor" in pathlib.Path(flag).read_text():
            raise ValueError("the model is not there")

    def reconfigure(self, config: Any) -> None:
        if config == {"bad": True}:
            raise ValueError("such a configuration is not known")

    def check_health(self) -> None:
        if self._flag and "health" in pathlib.Path(self._flag).read_text():
            raise ValueError("it is ill")


MODEL = serve.deployment(ray_actor_options={"num_cpus": 0})(Model)


@pytest.fixture
def controller(session: None) -> Iterator[Any]:
    """Everything that was served is gone afterwards."""
    actor = (
        runtime.remote(ServeControllerActor)
        .options(
            name=CONTROLLER,
            namespace=NAMESPACE,
            lifetime="detached",
            num_cpus=0,
            max_restarts=-1,
            max_task_retries=-1,
        )
        .remote(OPTIONS)
    )
    yield actor
    runtime.get(actor.shutdown.remote(), timeout=30)
    assert _internal_kv_list(b"", namespace=NAMESPACE) == []
    runtime.kill(actor)


def deploy(controller: Any, name: str, *deployments: Any, prefix: str | None = None) -> None:
    """An application of deployments in a row, the last of which is its ingress."""
    spec = build(deployments[-1].bind(*map(bound, deployments[:-1])), name, prefix, lambda *names: names).spec
    runtime.get(controller.deploy.remote([spec], START), timeout=30)


def bound(deployment: Any) -> Any:
    return deployment if isinstance(deployment, str | int) else deployment.bind()


def replicas(controller: Any, app: str, deployment: str = "Model") -> list[dict[str, Any]]:
    details = runtime.get(controller.details.remote(), timeout=10)
    found: list[dict[str, Any]] = details["applications"][app]["deployments"][deployment]["replicas"]
    return [each for each in found if each["state"] != "STOPPING"]


def state(controller: Any, app: str, deployment: str = "Model") -> tuple[str, str, str]:
    details = runtime.get(controller.details.remote(), timeout=10)["applications"][app]
    one = details["deployments"][deployment]
    return details["status"], one["status"], one["message"]


def pids(controller: Any, app: str) -> set[int]:
    return {each["pid"] for each in replicas(controller, app)}


def test_updates_replace_only_what_changed(controller: Any) -> None:
    deploy(controller, "app", 1, MODEL.options(num_replicas=2))
    first = pids(controller, "app")
    deploy(controller, "app", 1, MODEL.options(num_replicas=3, user_config={"x": 1}))
    second = pids(controller, "app")
    assert len(second) == 3
    assert first < second
    deploy(controller, "app", 2, MODEL.options(num_replicas=3, user_config={"x": 1}))
    assert len(pids(controller, "app")) == 3
    assert not pids(controller, "app") & second
    assert state(controller, "app") == ("RUNNING", "HEALTHY", "")
    assert sorted(each["rank"] for each in replicas(controller, "app")) == [0, 1, 2]


def test_a_constructor_that_raises_fails_the_deployment_with_its_traceback(
    controller: Any, tmp_path: pathlib.Path
) -> None:
    flag = tmp_path / "flag"
    flag.write_text("constructor")
    with pytest.raises(DeployFailed, match=r"(?s)in __init__.*the model is not there.*failure 3 of 3"):
        deploy(controller, "app", 1, str(flag), MODEL)
    assert state(controller, "app")[:2] == ("DEPLOY_FAILED", "DEPLOY_FAILED")
    flag.write_text("")
    deploy(controller, "app", 1, str(flag), MODEL)
    assert state(controller, "app") == ("RUNNING", "HEALTHY", "")


def test_a_bad_update_leaves_the_replicas_that_have_not_taken_it(controller: Any) -> None:
    deploy(controller, "app", 1, MODEL.options(num_replicas=3))
    before = pids(controller, "app")
    bad = MODEL.options(num_replicas=3, user_config={"bad": True}, max_constructor_retry_count=2)
    with pytest.raises(DeployFailed, match="such a configuration is not known"):
        deploy(controller, "app", 1, bad)
    left = pids(controller, "app")
    assert len(left) == 2
    assert left < before
    assert load_targets(kv(targets_key("app", "Model"))).state == "running"


def test_a_replica_that_dies_or_is_ill_is_replaced(controller: Any, tmp_path: pathlib.Path) -> None:
    flag = tmp_path / "flag"
    flag.write_text("")
    deploy(controller, "app", 1, str(flag), MODEL.options(num_replicas=2, health_check_period_s=0.05))
    before = pids(controller, "app")
    killed = before.pop()
    os.kill(killed, signal.SIGKILL)
    assert eventually(lambda: before < (now := running(controller)) and killed not in now)
    flag.write_text("health")
    assert eventually(lambda: state(controller, "app")[:2] == ("UNHEALTHY", "UNHEALTHY"))
    assert eventually(lambda: "it is ill" in state(controller, "app")[2])
    flag.write_text("")
    assert eventually(lambda: state(controller, "app") == ("RUNNING", "HEALTHY", ""))


def running(controller: Any) -> set[int]:
    return {each["pid"] for each in replicas(controller, "app") if each["state"] == "RUNNING"}


def test_a_killed_controller_comes_back_and_kills_nobody(controller: Any) -> None:
    deploy(controller, "app", 1, MODEL.options(num_replicas=2), prefix="/app")
    before = pids(controller, "app")
    details = runtime.get(controller.details.remote(), timeout=10)
    published = load_targets(kv(targets_key("app", "Model")))
    os.kill(details["controller_info"]["pid"], signal.SIGKILL)
    runtime.get(controller.wait_for.remote(["app"], ["RUNNING"], 20), timeout=30)
    assert pids(controller, "app") == before
    assert load_targets(kv(targets_key("app", "Model"))) == published
    deploy(controller, "app", 1, MODEL.options(num_replicas=1), prefix="/app")
    assert pids(controller, "app") < before


def test_a_placement_group_for_each_replica(controller: Any) -> None:
    bundles = [{"CPU": 1.0}, {"CPU": 1.0}]
    deploy(controller, "app", 1, serve.deployment(placement_group_bundles=bundles, name="Model")(Model))
    (name,) = (each["actor_name"] for each in replicas(controller, "app"))
    groups = {row["name"]: row for row in placement_group_table().values() if row["state"] == "CREATED"}
    assert len(groups[name]["bundles"]) == 2
    assert not fits_somewhere({"CPU": 3.0})
    runtime.get(controller.delete.remote(["app"]), timeout=30)
    assert eventually(lambda: fits_somewhere({"CPU": 4.0}))


def test_new_replicas_get_the_room_of_old_ones(controller: Any) -> None:
    """A node with 4 CPUs has no room for a second replica that needs 3."""
    large = serve.deployment(ray_actor_options={"num_cpus": 3})(Model)
    deploy(controller, "app", 1, large)
    before = pids(controller, "app")
    deploy(controller, "app", 2, large)
    assert len(pids(controller, "app") - before) == 1


def test_replicas_beyond_the_limit_of_a_node_wait(controller: Any) -> None:
    limited = MODEL.options(num_replicas=2, max_replicas_per_node=1)
    spec = build(limited.bind(1), "app", None, lambda *names: names).spec
    runtime.get(controller.deploy.remote([spec], START, waits=False), timeout=10)
    assert eventually(lambda: len(running(controller)) == 1)
    with pytest.raises(TimeoutError, match="'app': 'DEPLOYING'"):
        runtime.get(controller.wait_for.remote(["app"], ["RUNNING"], 0.2), timeout=10)


def test_scaling_from_zero_is_at_once_and_back_when_nothing_waits(controller: Any) -> None:
    config = {
        "min_replicas": 0,
        "max_replicas": 2,
        "upscale_delay_s": 30,
        "downscale_delay_s": 0,
        "look_back_period_s": 0.1,
    }
    deploy(controller, "app", 1, MODEL.options(autoscaling_config=config))
    assert replicas(controller, "app") == []
    runtime.get(controller.record_demand.remote(Demand("caller", {("app", "Model"): 3})))
    assert eventually(lambda: len(running(controller)) == 1)
    runtime.get(controller.record_demand.remote(Demand("caller", {})))  # it tells of all its queues
    assert eventually(lambda: replicas(controller, "app") == [])


def test_what_is_refused(controller: Any) -> None:
    deploy(controller, "one", 1, MODEL, prefix="/")
    with pytest.raises(Refused, match="is being used by application 'one'"):
        deploy(controller, "two", 1, MODEL, prefix="/")
    with pytest.raises(Refused, match="not scaled from outside"):
        runtime.get(controller.set_replicas.remote("one", "Model", 2), timeout=10)
    assert runtime.get(controller.find.remote("one"), timeout=10) == "Model"
    assert runtime.get(controller.find.remote("one", "nothing"), timeout=10) is None


def test_an_ingress_that_cannot_listen_says_so(controller: Any) -> None:
    taken = Configure({"host": "127.0.0.1", "port": 1}, {}, "HeadOnly")
    with pytest.raises(Refused, match="port 1 is taken"):
        runtime.get(controller.start.remote(taken), timeout=30)


def kv(key: bytes) -> bytes:
    from runtime.experimental.internal_kv import _internal_kv_get

    value = _internal_kv_get(key, namespace=NAMESPACE)
    assert value is not None
    return value


def declared(args: dict[str, str]) -> Any:
    if args.get("fails"):
        raise ValueError("it cannot be made")
    return MODEL.bind(int(args["version"]))


def test_a_configuration_is_built_in_tasks(controller: Any) -> None:
    path = __name__
    config = {
        "applications": [
            {
                "name": "a",
                "route_prefix": "/a",
                "import_path": f"{path}:declared",
                "args": {"version": "2"},
                "deployments": [{"name": "Model", "num_replicas": 2}],
            },
            {"name": "b", "route_prefix": "/b", "import_path": f"{path}:declared", "args": {"fails": "yes"}},
        ]
    }
    runtime.get(controller.deploy_config.remote(config), timeout=30)
    runtime.get(controller.wait_for.remote(["a"], ["RUNNING"], 30), timeout=40)
    runtime.get(controller.wait_for.remote(["b"], ["DEPLOY_FAILED"], 30), timeout=40)
    details = runtime.get(controller.details.remote(), timeout=10)["applications"]
    assert "it cannot be made" in details["b"]["message"]
    assert (details["a"]["source"], len(details["a"]["deployments"]["Model"]["replicas"])) == (
        "declarative",
        2,
    )
    deploy(controller, "by hand", 1, MODEL)
    runtime.get(controller.deploy_config.remote({"applications": config["applications"][:1]}), timeout=30)
    runtime.get(controller.wait_for.remote(["b"], [], 30), timeout=40)
    runtime.get(controller.wait_for.remote(["a", "by hand"], ["RUNNING"], 30), timeout=40)
