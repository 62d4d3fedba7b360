"""How a node keeps what plugins of environments make."""

from __future__ import annotations

import asyncio
import pathlib
import sys

import pytest

import runtime
from tests.polling import eventually
from tests.runtime._node.test_environments import key, service

PLUGIN = """
from runtime._private.runtime_env.plugin import RuntimeEnvPlugin

calls = []

class Fetched(RuntimeEnvPlugin):
    name = "fetched"

    def get_uris(self, runtime_env):
        return [runtime_env["fetched"]]

    async def create(self, uri, runtime_env, context, logger):
        calls.append(("create", uri))
        return 600

    def delete_uri(self, uri, logger):
        calls.append(("delete", uri))
        return 600
"""


def test_what_a_plugin_made_is_deleted_when_the_cache_is_full(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "env_plugin_fetched.py").write_text(PLUGIN)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setitem(sys.modules, "ray", runtime)  # the alias is not installed for other tests
    monkeypatch.setenv("RAY_RUNTIME_ENV_PLUGINS", '[{"class": "env_plugin_fetched.Fetched"}]')
    monkeypatch.setenv("RAY_RUNTIME_ENV_FETCHED_CACHE_SIZE_GB", str(1000 / 2**30))

    async def scenario() -> None:
        made = service(tmp_path / "environments")
        first, second = key({"fetched": "a"}), key({"fetched": "b"})
        await made.prepare(first)
        await made.prepare(key({"fetched": "a", "env_vars": {"A": "1"}}))
        made.release(key({"fetched": "a", "env_vars": {"A": "1"}}))
        calls = sys.modules["env_plugin_fetched"].calls
        await made.prepare(second)
        assert calls == [("create", "a"), ("create", "b")], "both are used"
        made.release(first)
        assert await asyncio.to_thread(eventually, lambda: len(calls) > 2)
        assert calls[2:] == [("delete", "a")]
        await made.close()

    asyncio.run(scenario())
