"""What podman is told for workers in containers, and what is said of environments that cannot be."""

from __future__ import annotations

import asyncio
import os
import pathlib
from typing import Any

import pytest

from runtime._node.environments import container
from runtime._node.environments.place import Container
from runtime._transport.channel import CallError
from tests.runtime._node.test_environments import key, service


def test_the_image_by_either_field() -> None:
    assert container.chosen({"env_vars": {}}, []) is None
    assert container.chosen({"image_uri": "a:1"}, ["/x"]) == Container("a:1", (), ("/x",))
    described = {"image": "b", "run_options": ["--memory=1g"], "worker_path": "/ignored"}
    assert container.chosen({"container": described}, []) == Container("b", ("--memory=1g",))


def test_folders_within_others_are_mounted_once() -> None:
    shared = ("/session", "/session/sockets", "/sessions", "/session", "/disk")
    made = container.chosen({"image_uri": "a"}, shared)
    assert made is not None
    assert made.folders == ("/session", "/sessions", "/disk")


@pytest.mark.parametrize(
    ("env", "words"),
    [
        ({"container": {"worker_path": "x"}}, "names no image"),
        ({"container": "a"}, "names no image"),
        ({"image_uri": 3}, "names no image"),
        ({"container": {"image": "a", "run_options": "--memory=1g"}}, "a list of strings"),
        ({"image_uri": "a", "pip": {"packages": ["x"]}}, "together with pip: install into the image"),
    ],
)
def test_wrong_descriptions(env: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        container.chosen(env, [])


def test_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_AUTH_TOKEN", "secret")
    monkeypatch.setenv("PATH", "/of/the/node")
    made = Container("image", ("--device=gpu",), ("/session",))
    command = container.run_command(made, "python3", ["-c", "pass"], {"OMP_NUM_THREADS": "2"}, 2)
    assert command[:3] == ["podman", "run", "--rm"]
    assert command[-5:] == ["--device=gpu", "--entrypoint=python3", "image", "-c", "pass"]
    for option in ("--network=host", "--pid=host", "--volume=/session:/session", "--preserve-fds=2"):
        assert option in command
    assert f"--user={os.getuid()}:{os.getgid()}" in command
    assert "--env=OMP_NUM_THREADS=2" in command
    assert "--env=RAY_AUTH_TOKEN" in command, "podman takes the value from its environment"
    assert not any("secret" in word or "/of/the/node" in word for word in command)


def test_without_podman(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))

    async def scenario() -> None:
        made = service(tmp_path / "environments")
        with pytest.raises(CallError, match="image a need podman, which is not installed on this node"):
            await made.prepare(key({"image_uri": "a"}))
        await made.close()

    asyncio.run(scenario())
