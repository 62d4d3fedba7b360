"""The runtime environment of a submitted job."""

from __future__ import annotations

import pathlib
from typing import Any

import pytest

from clusterctl.errors import CliError, NotFound, UsageProblem
from clusterctl.jobs import environment
from clusterctl.jobs.package import Package
from runtime._core.environments import package_uri


class Api:
    """A head that takes packages."""

    def __init__(self) -> None:
        self.put_paths: list[str] = []

    def request(self, method: str, path: str, **_: Any) -> None:
        raise NotFound(path)

    def put(self, path: str, data: bytes) -> None:
        self.put_paths.append(path)


def test_a_file_or_json(tmp_path: pathlib.Path) -> None:
    file = tmp_path / "env.yaml"
    file.write_text("env_vars: {A: '1'}\npip: [x]\n")
    assert environment.read(str(file), None)["pip"]["packages"] == ["x"]
    assert environment.read(None, '{"env_vars": {"A": "1"}}') == {"env_vars": {"A": "1"}}
    assert environment.read(None, None) == {}


@pytest.mark.parametrize("text", ["[1]", "{", '{"env_vars": {"A": 1}}', '{"working_dir": "/does/not/exist"}'])
def test_what_is_wrong_is_said(text: str) -> None:
    with pytest.raises(UsageProblem, match="runtime environment"):
        environment.read(None, text)


def test_one_or_the_other() -> None:
    with pytest.raises(UsageProblem, match="exclude"):
        environment.read("a", "{}")
    with pytest.raises(NotFound):
        environment.read("/does/not/exist.yaml", None)


def test_local_modules_travel_too(tmp_path: pathlib.Path) -> None:
    (tmp_path / "module.py").write_text("")
    api: Any = Api()
    asked = environment.read(
        None, f'{{"py_modules": ["{tmp_path}/module.py"], "env_vars": {{"A": "1", "B": "1"}}}}'
    )
    package = Package("0" * 64, b"zip", 1)
    ready = environment.upload_files(api, asked, package, {"B": "2"})
    assert ready["working_dir"] == package_uri(package.digest)
    assert ready["env_vars"] == {"A": "1", "B": "2"}
    assert len(api.put_paths) == 2
    assert api.put_paths[1].rpartition("/")[2] in ready["py_modules"][0]
    (tmp_path / "text.txt").write_text("")
    with pytest.raises(CliError, match="must be a directory or an archive"):
        environment.upload_files(
            api, environment.read(None, f'{{"py_modules": ["{tmp_path}/text.txt"]}}'), package, {}
        )
