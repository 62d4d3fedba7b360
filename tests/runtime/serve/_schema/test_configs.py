"""Configurations: what is read, and errors that name field and place."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from runtime.serve.schema import (
    DeploymentSchema,
    ServeApplicationSchema,
    ServeDeploySchema,
    ServeInstanceDetails,
    ServeStatus,
)

APP = {"name": "text", "import_path": "module:app"}


def of(**more: Any) -> dict[str, Any]:
    """A configuration of one application with one deployment."""
    return {"applications": [{**APP, "deployments": [{"name": "Model", **more}]}]}


def test_what_is_given_is_dumped_and_nothing_else() -> None:
    given = {
        "proxy_location": "HeadOnly",
        "http_options": {"port": 8001},
        "applications": [
            {
                **APP,
                "route_prefix": None,
                "args": {"size": 3},
                "deployments": [
                    {"name": "Model", "num_replicas": 2, "ray_actor_options": {"num_cpus": 0.5}},
                    {"name": "Other", "num_replicas": "auto", "autoscaling_config": {"max_replicas": 7}},
                ],
            }
        ],
    }
    config = ServeDeploySchema.model_validate(given)
    assert config.model_dump(exclude_unset=True) == given
    assert ServeDeploySchema.parse_obj(config.dict(exclude_unset=True)).model_dump() == config.model_dump()
    assert config.model_dump()["http_options"]["host"] == "0.0.0.0"
    assert config.applications is not None
    assert config.applications[0].deployments[0].overrides() == {
        "num_replicas": 2,
        "ray_actor_options": {"num_cpus": 0.5},
    }


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ([], "ServeDeploySchema is made of a dict"),
        ({}, "applications is missing"),
        ({"applications": 3}, "applications must be a list, not 3"),
        ({"applications": [{}]}, "applications[0]: import_path must have the form module:name"),
        ({"applications": [{**APP, "import_path": "module"}]}, "applications[0] (text): import_path must"),
        ({"applications": [{**APP, "import_path": "a:b:c"}]}, "import_path must have the form"),
        ({"applications": [{**APP, "route_prefix": "x"}]}, "route_prefix must begin with '/' or be None"),
        ({"applications": [{**APP, "route_prefix": "/x/"}]}, "route_prefix must not end with '/'"),
        ({"applications": [{**APP, "name": ""}]}, "name must be a non-empty string"),
        ({"applications": [APP, APP]}, "applications: text is there more than once"),
        (
            {"applications": [APP, {**APP, "name": "b"}]},
            "route_prefix of applications: / is there more than once",
        ),
        ({"applications": [{**APP, "port": 1}]}, "The application text has port: move it to http_options"),
        ({"applications": [{**APP, "runtime_env": {"working_dir": "."}}]}, "working_dir and py_modules of a"),
        ({"applications": [{**APP, "args": [1]}]}, "args must be a dict, not [1]"),
        (
            {"applications": [], "http_options": {"port": "x"}},
            "http_options: port must be an integer, not 'x'",
        ),
        ({"applications": [], "proxy_location": "Moon"}, "proxy_location must be one of Disabled, HeadOnly"),
        (
            {"applications": [], "logging_config": {"log_level": "LOUD"}},
            "logging_config: log_level must be one",
        ),
        (
            {"applications": [], "target_capacity": 101},
            "target_capacity must be a percentage from 0 to 100, not 101",
        ),
        (
            of(num_replicas=-1),
            "applications[0] (text).deployments[0] (Model): num_replicas must be at least 1",
        ),
        (of(num_replicas=2, autoscaling_config={}), "Manually setting num_replicas is not allowed"),
        (of(num_replicas="many"), 'num_replicas must be an integer or "auto"'),
        (of(max_ongoing_requests=0), "max_ongoing_requests must be at least 1, not 0"),
        (of(max_queued_requests=0), "max_queued_requests must be -1 (no limit) or positive"),
        (of(max_surge_percent=101), "(Model): max_surge_percent must be at most 100, not 101"),
        (of(rolling_update_percentage=2), "(Model): rolling_update_percentage must be above 0 and at most 1"),
        (of(health_check_period_s=0), "health_check_period_s must be positive, not 0"),
        (
            of(ray_actor_options={"num_cpus": "x"}),
            "(Model).ray_actor_options: num_cpus must be a number, not 'x'",
        ),
        (of(autoscaling_config={"min_replicas": -1}), "(Model).autoscaling_config: min_replicas must be"),
        (
            of(logging_config={"encoding": "XML"}),
            "(Model).logging_config: encoding must be one of TEXT, JSON",
        ),
        (
            of(ray_actor_options={"runtime_env": {"py_modules": ["x"]}}),
            "must be URIs that all nodes can fetch",
        ),
    ],
)
def test_errors_name_field_and_place(config: Any, message: str) -> None:
    with pytest.raises(ValueError) as error:
        ServeDeploySchema.model_validate(config)
    assert message in str(error.value)


def test_unknown_fields_are_ignored_with_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    app = ServeApplicationSchema.model_validate({**APP, "import_pth": "x"})
    assert app.import_path == "module:app"
    assert "ServeApplicationSchema has no field import_pth" in caplog.text


def test_scaling_from_outside_excludes_autoscaling() -> None:
    deployments = [DeploymentSchema(name="Model", num_replicas="auto")]
    with pytest.raises(ValueError, match=r"external_scaler_enabled excludes autoscaling.*Model"):
        ServeApplicationSchema(import_path="a:b", external_scaler_enabled=True, deployments=deployments)


def test_details_of_nothing() -> None:
    details = ServeInstanceDetails.model_validate(ServeInstanceDetails.get_empty_schema_dict())
    assert details._get_status() == ServeStatus()


def test_schemas_are_imported_on_first_use() -> None:
    program = "import sys, runtime.serve.schema; assert 'runtime.serve._schema.configs' not in sys.modules"
    subprocess.run([sys.executable, "-c", program], check=True, timeout=30)
