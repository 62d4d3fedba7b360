"""What a RuntimeEnv accepts."""

from __future__ import annotations

import pathlib
import pickle
from typing import Any

import pytest

from tests.under_test import OWN, ray

if OWN:
    from runtime.runtime_env import RuntimeEnv, RuntimeEnvConfig
else:
    import ray.runtime_env

    RuntimeEnv, RuntimeEnvConfig = ray.runtime_env.RuntimeEnv, ray.runtime_env.RuntimeEnvConfig


@pytest.mark.parametrize(
    ("fields", "error", "words"),
    [
        ({"env_vars": {"a": 1}}, TypeError, r"env_vars.*Dict\[str, str\].*the value 1"),
        ({"env_vars": {1: "a"}}, TypeError, r"env_vars.*Dict\[str, str\].*the key 1"),
        ({"env_vars": ["a"]}, TypeError, "env_vars"),
        ({"working_dir": 1}, TypeError, "must be a string"),
        ({"working_dir": "/does/not/exist"}, ValueError, "not a valid path"),
        ({"working_dir": "unknown://abc"}, ValueError, "a valid URI"),
        ({"working_dir": "s3://bucket/file"}, ValueError, "Only .zip.*supported"),
        ({"py_modules": "."}, TypeError, "must be a list of strings"),
        ({"py_modules": [1]}, TypeError, "must be a string"),
        ({"py_modules": ["/does/not/exist"]}, ValueError, "not a valid path"),
        ({"py_modules": ["gs://b/file.txt"]}, ValueError, "Only .zip.*supported"),
        ({"pip": 1}, TypeError, "pip"),
        ({"pip": [1]}, TypeError, "pip"),
        ({"pip": "/no/requirements.txt"}, ValueError, "not a valid file"),
        ({"pip": {}}, ValueError, "must include field 'packages'"),
        ({"pip": {"packages": ["a"], "other": 1}}, ValueError, "can only have these fields"),
        ({"pip": {"packages": ["a"], "pip_check": "x"}}, TypeError, "pip_check.*bool"),
        ({"pip": {"packages": ["a"], "pip_version": 1}}, TypeError, "pip_version.*str"),
        ({"pip": {"packages": ["a"], "pip_install_options": "-x"}}, TypeError, "pip_install_options"),
        ({"uv": 1}, TypeError, "uv"),
        ({"uv": {"packages": ["a"], "uv_check": 1}}, TypeError, "uv_check"),
        ({"uv": {"packages": ["a"], "other": 1}}, ValueError, "can only have these fields"),
        ({"conda": 1}, TypeError, "conda"),
        ({"conda": "no.yaml"}, ValueError, "Can't find conda YAML file"),
        ({"pip": ["a"], "uv": ["b"]}, ValueError, "cannot be specified at the same time"),
        ({"pip": ["a"], "conda": "b"}, ValueError, "cannot be specified at the same time"),
        ({"uv": ["a"], "conda": "b"}, ValueError, "cannot be specified at the same time"),
        ({"excludes": "a"}, TypeError, "excludes"),
        ({"config": 1}, TypeError, "config"),
        ({"image_uri": "x", "pip": ["a"]}, ValueError, "cannot be used together with other fields"),
        (
            {"container": {"image": "x"}, "pip": ["a"]},
            ValueError,
            "cannot be used together with other fields",
        ),
    ],
)
def test_wrong_fields(fields: dict[str, Any], error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        RuntimeEnv(**fields)


@pytest.mark.skipif(not OWN, reason="a field of this engine alone")
def test_modules_to_preload_are_names() -> None:
    assert RuntimeEnv(preload=["a.b", "c", "a.b"]) == {"preload": ["a.b", "c"]}
    assert RuntimeEnv(preload=[]) == {}
    assert RuntimeEnv(image_uri="x", preload=["a"])["preload"] == ["a"]
    for wrong in ("torch", [1]):
        with pytest.raises(TypeError, match="preload"):
            RuntimeEnv(preload=wrong)
    for wrong in (["a-b"], [""], ["a..b"], ["/a.py"]):
        with pytest.raises(ValueError, match="names of modules"):
            RuntimeEnv(preload=wrong)


def test_nothing_is_nothing() -> None:
    assert RuntimeEnv() == {}
    assert RuntimeEnv(pip=None, env_vars=None) == {}
    assert RuntimeEnv(pip=[]) == {}
    assert RuntimeEnv(excludes=[]) == {}


def test_packages_become_one_form(tmp_path: pathlib.Path) -> None:
    expected = {"packages": ["a", "b==1"], "pip_check": False}
    requirements = tmp_path / "requirements.txt"
    requirements.write_text("a\nb==1\n")
    assert RuntimeEnv(pip=["a", "b==1", "a"])["pip"] == expected
    assert RuntimeEnv(pip={"packages": ["a", "b==1"]})["pip"] == expected
    assert RuntimeEnv(pip=str(requirements))["pip"] == expected
    assert RuntimeEnv(uv=["a"])["uv"] == {"packages": ["a"], "uv_check": False}


def test_the_fields_can_be_asked_for(tmp_path: pathlib.Path) -> None:
    env = RuntimeEnv(
        env_vars={"A": "1"}, pip=["x"], working_dir=str(tmp_path), py_modules=["s3://b/m.zip"], other=1
    )
    assert env.env_vars() == {"A": "1"}
    assert env.working_dir() == str(tmp_path)
    assert env.py_modules() == ["s3://b/m.zip"]
    assert env.has_pip()
    assert not env.has_uv()
    assert not env.has_conda()
    assert env.pip_config() == {"packages": ["x"], "pip_check": False}
    assert env.get("none", 5) == 5
    assert env["other"] == 1


def test_setting_checks_too() -> None:
    env = RuntimeEnv(pip=["x"])
    env["pip"] = ["y"]
    assert env["pip"]["packages"] == ["y"]
    env.set("env_vars", {"A": "1"})
    assert env.env_vars() == {"A": "1"}


def test_it_travels() -> None:
    env = RuntimeEnv(env_vars={"B": "1", "A": "2"}, config={"setup_timeout_seconds": 5})
    assert pickle.loads(pickle.dumps(env)) == env
    assert type(pickle.loads(pickle.dumps(env))) is RuntimeEnv
    assert RuntimeEnv.deserialize(env.serialize()) == env
    assert RuntimeEnv(**env) == env
    copied = env.to_dict()
    copied["env_vars"]["A"] = "changed"
    assert env["env_vars"]["A"] == "2"
    assert type(copied) is dict


def test_config_has_defaults() -> None:
    defaults = {"setup_timeout_seconds": 600, "eager_install": True, "log_files": []}
    assert RuntimeEnvConfig() == defaults
    assert RuntimeEnv(config={"setup_timeout_seconds": 5})["config"] == {
        **defaults,
        "setup_timeout_seconds": 5,
    }
    assert RuntimeEnv(config=RuntimeEnvConfig(eager_install=False))["config"]["eager_install"] is False
    assert RuntimeEnv(config={"unknown": 1})["config"] == defaults


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"setup_timeout_seconds": 0}, ValueError),
        ({"setup_timeout_seconds": -2}, ValueError),
        ({"setup_timeout_seconds": 1.5}, TypeError),
        ({"eager_install": "yes"}, TypeError),
        ({"log_files": "x"}, TypeError),
        ({"log_files": [1]}, TypeError),
        ({"unknown": 1}, TypeError),
    ],
)
def test_wrong_configs(fields: dict[str, Any], error: type[Exception]) -> None:
    with pytest.raises(error):
        RuntimeEnvConfig(**fields)


def test_no_time_limit() -> None:
    assert RuntimeEnvConfig(setup_timeout_seconds=-1)["setup_timeout_seconds"] == -1
