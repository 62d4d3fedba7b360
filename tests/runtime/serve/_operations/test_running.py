"""Files and modules that `serve run --reload` looks at, and words on the command line."""

from __future__ import annotations

import os
import pathlib
import sys

import pytest
from typer.testing import CliRunner

from runtime.serve._operations import cli, running
from runtime.serve._operations.client import ServeError
from runtime.serve._operations.configuration import built_config


def test_a_changed_file_is_seen(tmp_path: pathlib.Path) -> None:
    (tmp_path / "package").mkdir()
    (tmp_path / ".hidden").mkdir()
    for name in ("a.py", "package/b.py", ".hidden/c.py", "d.txt"):
        (tmp_path / name).write_text("")
    before = running.snapshot(str(tmp_path))
    assert sorted(os.path.relpath(path, tmp_path) for path in before) == ["a.py", "package/b.py"]
    os.utime(tmp_path / "package" / "b.py", ns=(1, 1))
    assert running.snapshot(str(tmp_path)) != before


def test_modules_of_a_folder_are_imported_again(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "reloaded_part.py").write_text("value = 1\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    import reloaded_part  # type: ignore[import-not-found]

    modules = running.modules_below(str(tmp_path))
    assert modules == {"reloaded_part": reloaded_part}
    (tmp_path / "reloaded_part.py").write_text("value = 234\n")
    running.forget(modules)
    import reloaded_part as again

    assert again.value == 234
    del sys.modules["reloaded_part"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["deploy", "a:b", "size"], "Invalid application argument 'size'"),
        (["deploy", "a:b", "--runtime-env-json", "{"], "--runtime-env-json is no JSON"),
        (["build", "runtime.serve.config:HTTPOptions"], "is no application"),
        (["build", "no_such_module:app"], "No module named 'no_such_module'"),
    ],
)
def test_wrong_words(words: list[str], message: str) -> None:
    done = CliRunner().invoke(cli.app, words)
    assert done.exit_code == 1
    assert message in done.stderr


def test_several_applications_have_routes_of_their_own() -> None:
    path = "tests.runtime.serve._operations.programs"
    config = built_config([f"{path}:app", f"{path}:single"], ["m:add"], False)
    found = [(each["name"], each["route_prefix"], each["import_path"]) for each in config["applications"]]
    assert found == [("app1", "/app1", f"{path}:app"), ("app2", "/app2", f"{path}:single")]
    assert config["grpc_options"] == {
        "port": 9000,
        "grpc_servicer_functions": ["m:add"],
        "enable_reflection": False,
    }


def test_texts_of_several_lines_stay_legible() -> None:
    assert cli._yaml({"message": "first\n  second\n"}) == "message: |-\n  first\n    second\n"


def test_an_import_path_of_nothing_says_where_it_was_looked_for(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "served_empty.py").write_text("x = 1\n")
    (tmp_path / "served_broken.py").write_text("import is_not_there\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    for path, message in (
        ("is_not_there_either:app", "No module named 'is_not_there_either'. The application"),
        ("served_empty:app", "The module served_empty has no app. The application"),
    ):
        with pytest.raises(ServeError, match=message):
            running.found_at(path)
    with pytest.raises(ModuleNotFoundError, match="is_not_there"):  # with the traceback of the user's module
        running.found_at("served_broken:app")
