"""Fields of runtime_env that plugins of RAY_RUNTIME_ENV_PLUGINS understand."""

from __future__ import annotations

import json
import os
import pathlib
from collections.abc import Iterator
from typing import Any

import pytest

from tests.polling import eventually
from tests.under_test import NAME, exceptions, init, ray

PLUGINS = """
import pathlib, time
from ray._private.runtime_env.plugin import RuntimeEnvPlugin
import ray

LOG = pathlib.Path(__file__).with_name("log")

def note(*words):
    with open(LOG, "a") as file:
        print(*words, file=file)

class Sized(RuntimeEnvPlugin):
    name = "sized"

    def get_uris(self, runtime_env):
        return ["sized://" + name for name in runtime_env["sized"]]

    async def create(self, uri, runtime_env, context, logger):
        note("create", uri)
        return 600

    def modify_context(self, uris, runtime_env, context, logger):
        context.env_vars["SIZED"] = " ".join(uris)

    def delete_uri(self, uri, logger):
        note("delete", uri)
        return 600

class Python(RuntimeEnvPlugin):
    name = "python"

    def modify_context(self, uris, runtime_env, context, logger):
        context.py_executable += " -X dev"
        context.env_vars["OMP_NUM_THREADS"] = "3"

class Slow(RuntimeEnvPlugin):
    name = "slow"

    async def create(self, uri, runtime_env, context, logger):
        note("create", uri)
        while not LOG.with_name("go").exists():
            time.sleep(0.01)
        return 0

class NoPlugin:
    name = "other"
"""


@pytest.fixture
def folder(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[pathlib.Path]:
    """Where the module of the plugins is; sessions that begin now find it."""
    (tmp_path / "env_plugins.py").write_text(PLUGINS)
    before = os.environ.get("PYTHONPATH")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), *([before] if before else [])]))
    yield tmp_path
    ray.shutdown()


def use(monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
    monkeypatch.setenv(
        "RAY_RUNTIME_ENV_PLUGINS", json.dumps([{"class": f"env_plugins.{name}"} for name in names])
    )


def log(folder: pathlib.Path) -> list[str]:
    file = folder / "log"
    return file.read_text().splitlines() if file.exists() else []


@ray.remote
def variable(name: str) -> str | None:
    return os.environ.get(name)


@ray.remote
def flags() -> tuple[bool, str, bool]:
    import sys

    return sys.flags.dev_mode, os.environ["OMP_NUM_THREADS"], "ray" in sys.modules


def test_what_a_field_needs_is_created_once(folder: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, "Sized")
    monkeypatch.setenv("RAY_RUNTIME_ENV_SIZED_CACHE_SIZE_GB", str(1000 / 2**30))
    init(num_cpus=1)
    first = variable.options(runtime_env={"sized": ["a"]})
    assert [ray.get(first.remote("SIZED")) for _ in range(2)] == ["sized://a"] * 2
    assert log(folder) == ["create sized://a"]
    with pytest.raises(exceptions.RuntimeEnvSetupError, match="'int' object is not iterable"):
        ray.get(variable.options(runtime_env={"sized": 3}).remote("SIZED"))
    assert log(folder) == ["create sized://a"]


def test_a_plugin_chooses_the_python(folder: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, "Python")
    init(num_cpus=1)
    assert ray.get(flags.options(runtime_env={"python": 1}).remote())[:2] == (True, "3")
    assert not ray.get(flags.options(runtime_env={"env_vars": {"OMP_NUM_THREADS": "2"}}).remote())[0]


@pytest.mark.skipif(NAME == "ray", reason="Ray's agent for environments does nothing else meanwhile")
def test_a_plugin_that_blocks_stops_nobody_else(
    folder: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use(monkeypatch, "Slow")
    init(num_cpus=2)
    slow = variable.options(runtime_env={"slow": 1, "env_vars": {"A": "1"}}).remote("A")
    assert eventually(lambda: log(folder) == ["create None"])
    assert ray.get(variable.options(runtime_env={"env_vars": {"A": "2"}}).remote("A")) == "2"
    (folder / "go").touch()
    assert ray.get(slow) == "1"


@pytest.mark.skipif(NAME == "ray", reason="Ray's node does not start")
@pytest.mark.parametrize(
    ("described", "words"),
    [
        ("x", "RAY_RUNTIME_ENV_PLUGINS is a JSON list"),
        ('[{"class": "env_plugins.Missing"}]', "env_plugins.Missing cannot be loaded: AttributeError"),
        ('[{"class": "no_such_module.A"}]', "No module named 'no_such_module'"),
        ('[{"class": "env_plugins.NoPlugin"}]', "no subclass of RuntimeEnvPlugin"),
        ('[{"class": "env_plugins.Slow", "priority": 101}]', "101, not from 0 to 100"),
        ('[{"class": "env_plugins.Slow"}, {"class": "env_plugins.Slow"}]', "two plugins are named slow"),
    ],
)
def test_wrong_plugins(
    folder: pathlib.Path, monkeypatch: pytest.MonkeyPatch, described: str, words: str
) -> None:
    monkeypatch.setenv("RAY_RUNTIME_ENV_PLUGINS", described)
    init(num_cpus=1)
    with pytest.raises(exceptions.RuntimeEnvSetupError, match=words):
        ray.get(variable.options(runtime_env={"slow": 1}).remote("A"))
    assert ray.get(variable.options(runtime_env={"env_vars": {"A": "1"}}).remote("A")) == "1"


def test_a_driver_may_skip_the_hook(folder: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "env_hooks.py").write_text("def hook(env):\n    return {'env_vars': {'GIVEN': repr(env)}}\n")
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.setenv("RAY_RUNTIME_ENV_HOOK", "env_hooks.hook")
    seen: list[Any] = []
    for options in ({}, {"_skip_env_hook": True}):
        init(num_cpus=1, **options)
        seen.append(ray.get(variable.remote("GIVEN")))
        ray.shutdown()
    assert seen == ["None", None]
