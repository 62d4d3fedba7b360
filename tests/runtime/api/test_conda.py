"""Conda environments for workers, made for real with py-rattler from a channel in a folder."""

from __future__ import annotations

import importlib.util
import os
import pathlib
import sys
import zipfile
from collections.abc import Iterator
from typing import Any

import pytest

from tests.testbed.conda_channel import Channel
from tests.under_test import OWN, exceptions, init, ray

pytestmark = [
    pytest.mark.skipif(not OWN, reason="Ray needs conda itself"),
    pytest.mark.skipif(importlib.util.find_spec("rattler") is None, reason="py-rattler is not installed"),
]


@pytest.fixture(scope="module")
def channel(tmp_path_factory: pytest.TempPathFactory) -> Channel:
    made = Channel(tmp_path_factory.mktemp("channel"))
    made.add_python()
    made.add_pip()
    toy = {"site-packages/toy_numbers.py": b"ANSWER = 42\n"}
    made.add("toy-numbers", "1.0", {"site-packages/toy_numbers.py": b"ANSWER = 41\n"}, ["python"], "python")
    made.add("toy-numbers", "2.0", toy, ["python", "toy-tools"], "python")
    script = b'export TOY_TOOLS="$CONDA_PREFIX"/tools\n'
    made.add(
        "toy-tools", "0.1", {"etc/conda/activate.d/tools.sh": script, "bin/toy": b"#!/bin/sh\necho 7\n"}, []
    )
    made.add("python", "2.7.18", {"bin/python": b"#!/bin/sh\necho VERSION 2.7\n"}, [])
    return made


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory, channel: Channel) -> Iterator[pathlib.Path]:
    """A session without conda in its PATH. The value is the home directory."""
    home = tmp_path_factory.mktemp("home")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOME", str(home))
        patch.setenv("RATTLER_CACHE_DIR", str(home / "cache"))
        patch.setenv("PATH", "/usr/bin:/bin")
        for name in ("CONDA_EXE", "MAMBA_EXE", "RAY_CONDA_HOME", "MAMBA_ROOT_PREFIX"):
            patch.delenv(name, raising=False)
        init(num_cpus=2)
        yield home
        ray.shutdown()


@ray.remote
def look() -> dict[str, Any]:
    import subprocess

    import toy_numbers  # type: ignore[import-not-found]

    return {
        "answer": toy_numbers.ANSWER,
        "prefix": sys.prefix == os.environ["CONDA_PREFIX"],
        "activated": os.environ.get("TOY_TOOLS", "").removeprefix(sys.prefix),
        "toy": subprocess.run(["toy"], capture_output=True, text=True, check=True).stdout,
        "extra": importlib.util.find_spec("toy_wheel") is not None,
    }


@ray.remote
def prefix() -> str:
    return sys.prefix


def described(channel: Channel, *dependencies: Any) -> dict[str, Any]:
    return {"conda": {"channels": [channel.url], "dependencies": list(dependencies)}}


def test_a_description(session: pathlib.Path, channel: Channel) -> None:
    env = described(channel, "toy-numbers")
    expected = {"answer": 42, "prefix": True, "activated": "/tools", "toy": "7\n", "extra": False}
    assert ray.get(look.options(runtime_env=env).remote()) == expected
    again = described(channel, "toy-numbers")
    again["env_vars"] = {"A": "1"}
    places = ray.get([prefix.options(runtime_env=one).remote() for one in (env, again)])
    assert places[0] == places[1], "equal descriptions are made once"


def test_a_file_with_packages_of_pip(session: pathlib.Path, channel: Channel, tmp_path: pathlib.Path) -> None:
    wheel = tmp_path / "toy_wheel-1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("toy_wheel.py", "")
        about = "toy_wheel-1.0.dist-info"
        archive.writestr(f"{about}/METADATA", "Metadata-Version: 2.1\nName: toy-wheel\nVersion: 1.0\n")
        archive.writestr(f"{about}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{about}/RECORD", "")
    file = tmp_path / "environment.yml"
    file.write_text(
        f"name: toys\nchannels: [{channel.url}]\n"
        f"dependencies:\n  - toy-numbers=2\n  - pip\n  - pip:\n    - {wheel}\n"
    )
    found = ray.get(look.options(runtime_env={"conda": str(file)}).remote())
    assert found["answer"] == 42
    assert found["extra"]


def test_an_environment_that_exists(session: pathlib.Path, channel: Channel) -> None:
    made = ray.get(prefix.options(runtime_env=described(channel, "toy-numbers")).remote())
    (session / "miniforge3" / "envs").mkdir(parents=True)
    (session / "miniforge3" / "envs" / "toys").symlink_to(made)
    for name in ("toys", str(session / "miniforge3" / "envs" / "toys")):
        assert ray.get(look.options(runtime_env={"conda": name}).remote())["answer"] == 42


@pytest.mark.parametrize(
    ("dependencies", "words"),
    [
        (["no-such-package"], "no-such-package"),
        (["python=2.7"], "has Python 2.7, but workers need Python"),
        (["toy-numbers", {"pip": ["no-such-wheel @ file:///no/such.whl"]}], "No module named pip"),
    ],
)
def test_what_cannot_be_made(
    session: pathlib.Path, channel: Channel, dependencies: list[Any], words: str
) -> None:
    with pytest.raises(exceptions.RuntimeEnvSetupError, match=words):
        ray.get(prefix.options(runtime_env=described(channel, *dependencies)).remote())


def test_errors_show_no_credentials_of_channels(session: pathlib.Path) -> None:
    described = {"channels": ["http://127.0.0.1:1/t/secret/channel"], "dependencies": ["no-such-package"]}
    with pytest.raises(exceptions.RuntimeEnvSetupError, match=r"127\.0\.0\.1:1") as failed:
        ray.get(prefix.options(runtime_env={"conda": described}).remote())
    assert "secret" not in str(failed.value)


def test_a_name_that_the_node_does_not_know(session: pathlib.Path) -> None:
    with pytest.raises(exceptions.RuntimeEnvSetupError, match="no conda environment 'nobody'"):
        ray.get(prefix.options(runtime_env={"conda": "nobody"}).remote())
