"""Options: what they take and refuse, and how they are dumped and parsed."""

from __future__ import annotations

import os
import pickle
from typing import Any

import pytest

from runtime.serve import config
from runtime.serve._controller.starting import configure
from runtime.serve.schema import LoggingConfig


def test_they_are_made_dumped_and_parsed_as_pydantic_models_are() -> None:
    options = config.HTTPOptions(port=9, nonsense=1)
    assert options.model_dump(exclude_unset=True) == {"port": 9}
    assert options.dict()["host"] == "127.0.0.1"
    assert config.HTTPOptions.parse_obj({"port": 9}) == options
    assert config.HTTPOptions.model_validate(options) is not options
    assert options.copy(update={"host": "0.0.0.0"}).model_dump(exclude_unset=True) == {
        "port": 9,
        "host": "0.0.0.0",
    }
    assert pickle.loads(pickle.dumps(options)) == options


@pytest.mark.parametrize(
    ("cls", "values", "words"),
    [
        ("HTTPOptions", {"port": "x"}, "port must be an integer"),
        ("HTTPOptions", {"middlewares": [1]}, "takes no middlewares"),
        ("HTTPOptions", {"num_cpus": 1}, "takes no num_cpus"),
        ("HTTPOptions", {"ssl_keyfile": "x"}, "together or not at all"),
        ("HTTPOptions", {"ssl_keyfile": "/none", "ssl_certfile": "/none"}, "/none does not exist"),
        ("AutoscalingConfig", {"min_replicas": -1}, "min_replicas must be at least 0"),
        ("AutoscalingConfig", {"max_replicas": 0}, "max_replicas must be at least 1"),
        ("AutoscalingConfig", {"min_replicas": 3}, r"max_replicas \(1\) must be greater"),
        ("AutoscalingConfig", {"initial_replicas": 0}, "less than or equal to initial_replicas"),
        ("AutoscalingConfig", {"initial_replicas": 2}, "or equal to initial_replicas"),
        ("AutoscalingConfig", {"target_ongoing_requests": 0}, "must be positive"),
        ("AutoscalingConfig", {"upscale_delay_s": -1}, "upscale_delay_s must be at least 0"),
        ("AutoscalingConfig", {"aggregation_function": "median"}, "median"),
        ("AutoscalingPolicy", {"policy_kwargs": {"x": object()}}, "must be JSON"),
        ("BackpressureConfig", {"status_code": 500}, "503 or 429"),
        ("BackpressureConfig", {"retry_after": 5}, "no option retry_after"),
        ("ControllerOptions", {"runtime_env": {"pip": ["x"]}}, "takes env_vars only"),
        ("ControllerOptions", {"runtime_env": {"env_vars": {"A": 1}}}, "dict of strings"),
        ("RequestRouterConfig", {"max_backoff_s": 0}, "must be positive"),
    ],
)
def test_what_is_refused(cls: str, values: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        getattr(config, cls)(**values)


def test_autoscaling_defaults_and_factors() -> None:
    assert config.AutoscalingConfig.default().model_dump(exclude_unset=True) == {
        "target_ongoing_requests": 2,
        "min_replicas": 1,
        "max_replicas": 100,
    }
    one = config.AutoscalingConfig(smoothing_factor=0.5, upscaling_factor=2, downscale_smoothing_factor=0.25)
    assert (one.get_upscaling_factor(), one.get_downscaling_factor()) == (2, 0.25)
    assert config.AutoscalingConfig(smoothing_factor=0.5).get_upscaling_factor() == 0.5


def test_where_ingresses_are() -> None:
    assert config.HTTPOptions(host=None).location is config.ProxyLocation.Disabled
    with pytest.warns(DeprecationWarning, match="proxy_location"):
        assert config.HTTPOptions(location="NoServer").location is config.ProxyLocation.Disabled


def test_import_paths() -> None:
    assert config.imported("os.path:join") is os.path.join
    assert config.imported("ray.serve.config:HTTPOptions") is config.HTTPOptions
    assert config.gRPCOptions(grpc_servicer_functions=["os.path.join"]).grpc_servicer_func_callable == [
        os.path.join
    ]
    for wrong in ("nothing", "os:nothing"):
        with pytest.raises(ImportError, match="nothing"):
            config.imported(wrong)


def test_logging() -> None:
    made = LoggingConfig(log_level=10, additional_log_standard_attrs=["name", "name"])
    assert (made.log_level, made.encoding, made.additional_log_standard_attrs) == ("DEBUG", "TEXT", ["name"])
    for wrong in (
        {"encoding": "XML"},
        {"log_level": "LOUD"},
        {"additional_log_standard_attrs": ["mood"]},
        {"level": "INFO"},
    ):
        with pytest.raises(ValueError):
            LoggingConfig(**wrong)


def test_without_a_host_for_http_there_are_ingresses_for_grpc_only() -> None:
    grpc = {"grpc_servicer_functions": ["a.b"]}
    assert configure(None, {"host": None}, None).location == "Disabled"
    assert configure(None, {"host": None}, grpc).location == "EveryNode"
    assert configure("HeadOnly", {"host": None}, grpc).location == "HeadOnly"
    with pytest.raises(ValueError, match="together or not at all"):
        configure(None, None, {**grpc, "ssl_keyfile": "key"})
