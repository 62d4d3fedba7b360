"""Deployments and applications, before they run."""

from __future__ import annotations

import pickle
import subprocess
import sys
from typing import Any

import pytest

from runtime import cloudpickle, serve
from runtime.serve._build import Built, build
from runtime.serve.config import AutoscalingConfig, AutoscalingContext, AutoscalingPolicy
from runtime.serve.deployment import Application, Deployment


@serve.deployment
class Model:
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.args, self.kwargs = args, kwargs


@serve.deployment(name="other", num_replicas=3, user_config={"x": 1}, ray_actor_options={"num_gpus": 0.5})
class Second:
    pass


@serve.deployment
def function(_: Any) -> str:
    return "answer"


def own_policy(_: AutoscalingContext) -> tuple[int, dict[str, Any]]:
    return 2, {}


def built(app: Application, name: str = "app") -> Built:
    return build(app, name, "/", lambda deployment, app: ("handle", deployment, app))


def test_what_a_deployment_says_of_itself() -> None:
    assert (Model.name, Model.num_replicas, Model.max_ongoing_requests) == ("Model", 1, 5)
    assert (Second.name, Second.num_replicas, Second.user_config) == ("other", 3, {"x": 1})
    assert Second.ray_actor_options == {"num_gpus": 0.5, "num_cpus": 1}
    assert function.func_or_class(None) == "answer"
    assert str(Second) == "Deployment(name=other)"
    assert (Model.options() == Model, Model.options(num_replicas=2) == Model) == (True, False)
    assert Model.bind(1, x=2)._bound_deployment.init_kwargs == {"x": 2}


def test_options_change_what_they_name() -> None:
    changed = Second.options(name="new", user_config={"x": 2}, max_queued_requests=4)
    assert (changed.name, changed.num_replicas, changed.user_config) == ("new", 3, {"x": 2})
    assert (changed.max_queued_requests, Second.max_queued_requests) == (4, -1)


def test_auto_scales_from_one_to_a_hundred() -> None:
    auto = Model.options(num_replicas="auto")._options
    assert auto.num_replicas is None
    assert auto.autoscaling is not None
    assert (auto.autoscaling["min_replicas"], auto.autoscaling["max_replicas"]) == (1, 100)
    chosen = Model.options(num_replicas="auto", autoscaling_config={"max_replicas": 7})._options
    assert chosen.autoscaling is not None
    assert chosen.autoscaling["max_replicas"] == 7


def test_a_policy_travels_with_its_code() -> None:
    config = AutoscalingConfig(policy=AutoscalingPolicy(policy_function=own_policy))
    options = Model.options(autoscaling_config=config)._options
    assert pickle.loads(options.scaling_policy)(None) == (2, {})
    with pytest.raises(ImportError):
        Model.options(autoscaling_config={"policy": {"policy_function": "no.such.module:policy"}})
    assert Model.options(autoscaling_config=AutoscalingConfig())._options.scaling_policy == b""


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"replicas": 1}, TypeError, "has no option replicas"),
        ({"version": "1"}, ValueError, "`version` has been removed"),
        ({"num_replicas": 0}, ValueError, "larger than 0"),
        ({"num_replicas": -1}, ValueError, "at least 1"),
        ({"num_replicas": "many"}, ValueError, '"auto"'),
        ({"num_replicas": 2, "autoscaling_config": {}}, ValueError, "Manually setting num_replicas"),
        ({"max_ongoing_requests": None}, ValueError, "non-null"),
        ({"max_ongoing_requests": 0}, ValueError, "at least 1"),
        ({"max_queued_requests": 0}, ValueError, "must be -1"),
        ({"health_check_period_s": 0}, ValueError, "must be positive"),
        ({"graceful_shutdown_timeout_s": -1}, ValueError, "at least 0"),
        ({"user_config": object()}, ValueError, "must be JSON"),
        ({"ray_actor_options": {"max_restarts": 1}}, ValueError, "'max_restarts' in ray_actor_options"),
        ({"ray_actor_options": 1}, TypeError, "must be a dict"),
        ({"max_replicas_per_node": 0}, ValueError, "from 1 to 100"),
        ({"max_replicas_per_node": "x"}, TypeError, "an integer"),
        ({"placement_group_strategy": "PACK"}, ValueError, "placement_group_bundles"),
        ({"placement_group_bundles": [{"CPU": 0.5}]}, ValueError, "first bundle"),
        (
            {"placement_group_bundles": [{"CPU": 1}], "max_replicas_per_node": 1},
            ValueError,
            "max_replicas_per_node is not allowed",
        ),
        ({"name": "a#b"}, ValueError, "contain '#'"),
        ({"name": "a\0b"}, ValueError, "or NUL"),
        ({"name": 5}, TypeError, "must be a string"),
        ({"max_surge_percent": 101}, ValueError, "at most 100"),
        ({"rolling_update_percentage": 0}, ValueError, "above 0"),
        ({"deployment_actors": [{"name": "x"}]}, NotImplementedError, "deployment_actors is not supported"),
        ({"nonsense": 1}, TypeError, "nonsense"),
    ],
)
def test_what_is_refused(options: dict[str, Any], error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        Model.options(**options)
    with pytest.raises(error, match=words):
        serve.deployment(**options)(type("Some", (), {}))


def test_how_deployments_are_not_made() -> None:
    with pytest.raises(RuntimeError, match="decorator"):
        Deployment(int, "x", {})
    with pytest.raises(TypeError, match="class or function"):
        serve.deployment()(5)
    with pytest.raises(RuntimeError, match="not called"):
        Model()
    with pytest.raises(ValueError, match="takes no arguments"):
        function.bind(1)


def test_bound_applications_become_handles_wherever_they_are() -> None:
    class Holder:
        def __init__(self, app: Application) -> None:
            self.app = app

    shared = Second.bind()
    app = Model.bind(shared, [Model.bind(1)], found={"x": (shared, Holder(function.bind()))})
    result = built(app)
    assert [each.name for each in result.spec.deployments] == ["other", "Model", "function", "Model_1"]
    assert result.spec.ingress == "Model_1"
    args, kwargs = cloudpickle.loads(result.spec.deployments[-1].init)
    assert args == (("handle", "other", "app"), [("handle", "Model", "app")])
    assert kwargs["found"]["x"][0] == ("handle", "other", "app")
    assert kwargs["found"]["x"][1].app == ("handle", "function", "app")


def test_versions_of_classes_made_in_a_function_are_the_same_in_each_process() -> None:
    program = """
import typing, uuid
from runtime import serve
from runtime.serve._build import build
def made():
    T = typing.TypeVar("T")
    class Kind(typing.Generic[T]):
        pass
    class Model:
        kind = Kind[int]
        def __init__(self, kind, text):
            pass
    return serve.deployment(Model).bind(Kind, TEXT)
for TEXT in ("0" * 32, "0" * 32, "1" * 32):
    print(build(made(), "app", None, lambda *names: names).spec.deployments[-1].version)
"""
    versions = [
        subprocess.run(
            [sys.executable, "-c", program], capture_output=True, text=True, check=True
        ).stdout.split()
        for _ in range(2)
    ]
    assert versions[0] == versions[1]
    first, again, other = versions[0]
    assert first == again != other  # what looks like an id of a class counts


def test_versions_follow_from_code_arguments_and_what_replicas_are_made_with() -> None:
    def version(app: Application) -> str:
        return built(app).spec.deployments[-1].version

    assert version(Model.bind(1)) == version(Model.bind(1))
    assert version(Model.options(num_replicas=4, user_config={"x": 2}).bind(1)) == version(Model.bind(1))
    assert version(Model.bind(2)) != version(Model.bind(1))
    assert version(Second.options(name="Model").bind()) != version(Model.bind())
    assert version(Model.options(ray_actor_options={"num_cpus": 2}).bind(1)) != version(Model.bind(1))


def test_arguments_that_cannot_be_pickled_are_named() -> None:
    import threading

    with pytest.raises(TypeError, match="arguments of deployment 'Model' cannot be pickled"):
        built(Model.bind(threading.Lock()))
