"""What a node does to make environments ready."""

from __future__ import annotations

import asyncio
import hashlib
import http.server
import io
import json
import os
import pathlib
import shutil
import sys
import threading
import zipfile
from collections.abc import Iterator, Mapping
from types import SimpleNamespace
from typing import Any

import pytest

from runtime._core.environments import package_key, package_uri
from runtime._node.environments import Environments
from runtime._node.environments import builder as builder_module
from runtime._node.environments.place import DEFAULT_INTERPRETER
from runtime._transport.channel import CallError
from runtime._wire.messages.base import ErrorKind
from runtime._wire.messages.control import KvGet


class Packages:
    """A control store that has packages, and counts who asks."""

    def __init__(self) -> None:
        self.data: dict[bytes, bytes] = {}
        self.asked = 0

    def add(self, files: Mapping[str, str]) -> str:
        """Returns the URI."""
        buffer = io.BytesIO()
        with zipfile.ZipFile(buffer, "w") as archive:
            for name, text in files.items():
                archive.writestr(name, text)
        digest = hashlib.sha256(buffer.getvalue()).hexdigest()
        self.data[package_key(digest).encode()] = buffer.getvalue()
        return package_uri(digest)

    async def call(self, request: KvGet, timeout_s: float) -> Any:
        self.asked += 1
        await asyncio.sleep(0)
        return SimpleNamespace(value=self.data.get(request.key))


def service(folder: pathlib.Path, packages: Packages | None = None) -> Environments:
    async def config(_job_id: bytes) -> dict[str, Any]:
        return {}

    control: Any = packages or Packages()
    return Environments(str(folder), control, config)


def key(env: Mapping[str, Any], job: bytes = b"job") -> tuple[bytes, str]:
    return job, json.dumps(env)


def exists(path: str) -> bool:
    return os.path.exists(path)


def test_all_that_wait_share_one_preparation(tmp_path: pathlib.Path) -> None:
    async def scenario() -> None:
        packages = Packages()
        uri = packages.add({"a.py": "A = 1"})
        made = service(tmp_path, packages)
        keys = [
            key({"working_dir": uri}),
            key({"working_dir": uri, "env_vars": {"A": "1"}}),
            key({"py_modules": [uri]}),
        ]
        places = await asyncio.gather(*(made.prepare(k) for k in [*keys, *keys]))
        assert packages.asked == 2  # working directories and modules are apart
        assert places[0].cwd == places[1].cwd == places[3].cwd
        assert places[1].env["A"] == "1"
        assert places[2].cwd == ""
        assert places[2].path != []
        assert made.ready(keys[0]) is places[0]
        assert made.ready(key({"env_vars": {}})) is None
        await made.close()

    asyncio.run(scenario())


def test_what_a_preloading_zygote_sees_does_not_change_from_job_to_job(tmp_path: pathlib.Path) -> None:
    own = tmp_path / "own"
    own.mkdir()

    async def config(job_id: bytes) -> dict[str, Any]:
        return {"sys_path": [str(own)], "cwd": str(own), "ray_alias": job_id == b"ray"}

    async def scenario() -> None:
        packages: Any = Packages()
        uri = packages.add({"a.py": "A = 1"})
        made = Environments(str(tmp_path / "environments"), packages, config)
        env = {"py_modules": [uri], "env_vars": {"PYTHONPATH": str(own), "A": "1"}, "preload": ["a", "b"]}
        place, other = await asyncio.gather(made.prepare(key(env, b"1")), made.prepare(key(env, b"2")))
        preload = place.interpreter.preload
        assert preload is not None
        assert preload.modules == place.modules == ("a", "b")
        assert list(preload.path) == [path for path in place.path if path != str(own)]
        assert dict(preload.env) == place.env
        assert preload.cwd == ""
        assert place.cwd == str(own)
        assert place.interpreter == other.interpreter
        for changed in ({**env, "env_vars": {"A": "2"}}, {**env, "preload": ["a"]}):
            assert (await made.prepare(key(changed, b"1"))).interpreter != place.interpreter
        assert (await made.prepare(key(env, b"ray"))).interpreter != place.interpreter
        assert place.interpreter.plain == DEFAULT_INTERPRETER
        await made.close()

    asyncio.run(scenario())


def test_what_nobody_uses_goes_when_the_cache_is_full(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAY_RUNTIME_ENV_WORKING_DIR_CACHE_SIZE_GB", str(2500 / 2**30))

    async def scenario() -> None:
        packages = Packages()
        keys = [key({"working_dir": packages.add({"a": letter * 2000})}) for letter in "abc"]
        made = service(tmp_path, packages)
        first = (await made.prepare(keys[0])).cwd
        second = (await made.prepare(keys[1])).cwd
        assert exists(first), "it is used"
        made.release(keys[0])
        assert not exists(first)
        made.release(keys[1])
        assert exists(second), "there is room for one"
        assert (await made.prepare(keys[1])).cwd == second
        assert packages.asked == 2
        await made.prepare(keys[2])
        assert exists(second)
        assert (await made.prepare(keys[0])).cwd == first, "it is fetched again"
        assert packages.asked == 4
        await made.close()
        made.remove_files()
        assert not exists(str(tmp_path))

    asyncio.run(scenario())


def test_a_failed_installation_is_shared_for_a_while_and_then_tried_again(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        runs = []

        async def build(spec: Any, folder: pathlib.Path, variables: Any) -> None:
            runs.append(spec.config)
            raise builder_module.CommandFailed("pip said: no")

        monkeypatch.setattr(builder_module.venv, "build", build)
        made = service(tmp_path)
        for job in (b"1", b"2"):
            with pytest.raises(CallError, match="pip said: no") as caught:
                await made.prepare(key({"pip": {"packages": ["x"]}}, job))
            assert caught.value.kind == ErrorKind.RUNTIME_ENV
        assert len(runs) == 1
        monkeypatch.setattr(builder_module, "FAILURE_KEPT_S", 0.0)
        made._made()._failed.clear()
        for _ in range(2):
            with pytest.raises(CallError):
                await made.prepare(key({"pip": {"packages": ["x"]}}))
        assert len(runs) == 3
        assert made.current == []
        await made.close()

    asyncio.run(scenario())


def test_a_half_built_environment_is_deleted_beside_the_loop(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deleting: list[tuple[bool, int]] = []
    delete = shutil.rmtree

    def rmtree(folder: Any, ignore_errors: bool = False) -> None:
        deleting.append((exists(str(folder)), threading.get_ident()))
        delete(folder, ignore_errors=ignore_errors)

    async def fail(command: list[str], cwd: str, environment: Any) -> None:
        os.makedirs(f"{command[-1]}/lib")
        raise builder_module.CommandFailed("pip said: no")

    async def scenario() -> None:
        monkeypatch.setattr(builder_module.venv, "run", fail)
        made = service(tmp_path)
        monkeypatch.setattr(shutil, "rmtree", rmtree)
        with pytest.raises(CallError, match="pip said: no"):
            await made.prepare(key({"pip": {"packages": ["x"]}}))
        await made.close()

    asyncio.run(scenario())
    assert not list(tmp_path.rglob("lib"))
    assert any(was_there for was_there, _ in deleting)
    assert threading.get_ident() not in [thread for _, thread in deleting]


def test_a_preparation_that_takes_too_long_is_given_up(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        ended = asyncio.Event()

        async def build(spec: Any, folder: pathlib.Path, variables: Any) -> None:
            try:
                await asyncio.Event().wait()
            finally:
                ended.set()

        monkeypatch.setattr(builder_module.venv, "build", build)
        made = service(tmp_path)
        env = {"pip": {"packages": ["x"]}, "config": {"setup_timeout_seconds": 0.05}}
        with pytest.raises(CallError, match="setup_timeout_seconds"):
            await made.prepare(key(env))
        assert ended.is_set()
        waiting = asyncio.create_task(made.prepare(key({"pip": {"packages": ["x"]}})))
        await asyncio.sleep(0.01)
        ended.clear()
        await made.close()
        assert ended.is_set()
        await asyncio.gather(waiting, return_exceptions=True)

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("env", "words"),
    [
        ({"conda": "no-such-name"}, "no conda environment 'no-such-name'"),
        ({"java_jars": ["x"]}, "java_jars.*not supported"),
        ({"py_executable": "python", "pip": {"packages": ["x"]}}, "both py_executable and pip"),
        ({"working_dir": package_uri("0" * 64)}, "Failed to download.*no such package"),
        ({"working_dir": "file:///does/not/exist.zip"}, "Failed to download.*does/not/exist"),
        ({"working_dir": "s3://no-such-bucket/x.zip"}, "Failed to download"),
    ],
)
def test_what_fails_says_why(tmp_path: pathlib.Path, env: dict[str, Any], words: str) -> None:
    async def scenario() -> None:
        made = service(tmp_path)
        with pytest.raises(CallError, match=f"(?s){words}"):
            await made.prepare(key(env))
        assert made.current == []
        await made.close()

    asyncio.run(scenario())


@pytest.fixture
def server(tmp_path: pathlib.Path) -> Iterator[str]:
    """Serves `x.zip`; returns its address."""
    root = tmp_path / "www"
    root.mkdir()
    with zipfile.ZipFile(root / "x.zip", "w") as archive:
        archive.writestr("top/inside.txt", "served")

    class Handler(http.server.SimpleHTTPRequestHandler):
        def __init__(self, *args: Any) -> None:
            super().__init__(*args, directory=str(root))

        def log_message(self, *_: Any) -> None: ...

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as served:
        thread = threading.Thread(target=served.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{served.server_port}"
        served.shutdown()
        thread.join()


def test_archives_of_a_web_server(tmp_path: pathlib.Path, server: str) -> None:
    async def scenario() -> None:
        made = service(tmp_path / "environments")
        place = await made.prepare(key({"working_dir": f"{server}/x.zip"}))
        assert exists(f"{place.cwd}/inside.txt")
        with pytest.raises(CallError, match=r"Failed to download.*404"):
            await made.prepare(key({"working_dir": f"{server}/y.zip"}))
        await made.close()

    asyncio.run(scenario())


def test_variables_that_are_read_at_the_start_make_another_interpreter(tmp_path: pathlib.Path) -> None:
    async def scenario() -> None:
        made = service(tmp_path)
        plain = await made.prepare(key({"env_vars": {"A": "1", "PYTHONPATH": "/x"}}))
        assert plain.interpreter == DEFAULT_INTERPRETER
        assert plain.path == ["/x"]
        seeded = await made.prepare(key({"env_vars": {"PYTHONHASHSEED": "0"}}))
        assert seeded.interpreter.variables == (("PYTHONHASHSEED", "0"),)
        named = await made.prepare(key({"py_executable": f"{sys.executable} -X dev"}))
        assert named.interpreter.command == (sys.executable, "-X", "dev")
        await made.close()

    asyncio.run(scenario())
