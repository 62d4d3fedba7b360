"""A job's local files, packed."""

from __future__ import annotations

import io
import json
import pathlib
import zipfile

import pytest

from runtime._core.environments import package_uri
from runtime._packages import archive
from runtime._packages.job_files import collect, paths_of_modules


def names(data: bytes) -> list[str]:
    return zipfile.ZipFile(io.BytesIO(data)).namelist()


def test_a_working_dir_travels_by_its_contents(tmp_path: pathlib.Path) -> None:
    (tmp_path / "a.py").write_text("A = 1")
    (tmp_path / "big.bin").write_text("x")
    env, uploads = collect({"working_dir": str(tmp_path), "excludes": ["*.bin"]})
    [upload] = uploads
    assert names(upload.data) == ["a.py"]
    assert env["working_dir"].endswith(upload.key)
    assert collect({"working_dir": str(tmp_path), "excludes": ["*.bin"]})[0] == env


def test_modules_travel_by_their_names(tmp_path: pathlib.Path) -> None:
    folder, file = tmp_path / "package", tmp_path / "single.py"
    folder.mkdir()
    (folder / "__init__.py").write_text("")
    file.write_text("")
    wheel = tmp_path / "thing-0.1-py3-none-any.whl"
    wheel.write_bytes(b"wheel")
    remote = "s3://bucket/x.zip"
    env, uploads = collect({"py_modules": [str(folder), str(file), str(wheel), remote]})
    assert [names(upload.data) for upload in uploads[:2]] == [["package/__init__.py"], ["single.py"]]
    assert uploads[2].data == b"wheel"
    assert env["py_modules"][2].endswith("-thing-0.1-py3-none-any.whl")
    assert env["py_modules"][3] == remote


def test_imported_modules_are_found() -> None:
    import email

    assert paths_of_modules([json, email, "x"]) == [json.__path__[0], email.__path__[0], "x"]
    assert paths_of_modules("no list") == "no list"
    import sys

    with pytest.raises(ValueError, match="does not come from a file"):
        paths_of_modules([sys])


def test_archives_travel_as_they_are(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "x.tar.gz"
    path.write_bytes(b"data")
    env, [upload] = collect({"working_dir": str(path)})
    assert upload.data == b"data"
    assert env["working_dir"].endswith(".tar.gz")
    with pytest.raises(ValueError, match="must be a directory or an archive"):
        collect({"working_dir": __file__})


def test_a_hook_is_pickled() -> None:
    env, [upload] = collect({"worker_process_setup_hook": print}, lambda hook: hook.__name__.encode())
    assert upload.data == b"print"
    assert env["worker_process_setup_hook"].endswith(".hook")
    assert collect({"worker_process_setup_hook": "a.b"}) == ({"worker_process_setup_hook": "a.b"}, [])


def test_what_is_too_large_is_named(tmp_path: pathlib.Path) -> None:
    (tmp_path / "small").write_text("x")
    (tmp_path / "big").write_text("x" * 2000)
    with pytest.raises(archive.PackageError, match="big") as refused:
        archive.pack(str(tmp_path), archive.manifest(str(tmp_path)), limit_bytes=1000)
    assert refused.value.too_large


def test_a_single_folder_of_a_remote_archive_is_left_out(tmp_path: pathlib.Path) -> None:
    inner = tmp_path / "in" / "repo-main"
    inner.mkdir(parents=True)
    (inner / "a.py").write_text("A = 1")
    (inner / "repo-main").mkdir()
    (inner / "repo-main" / "b").write_text("")
    package = archive.pack(str(tmp_path / "in"), archive.manifest(str(tmp_path / "in")))
    (tmp_path / "x.zip").write_bytes(package.data)
    for strip, expected in ((True, ["a.py", "repo-main"]), (False, ["repo-main"])):
        out = tmp_path / f"out-{strip}"
        out.mkdir()
        archive.extract(str(tmp_path / "x.zip"), "x.zip", str(out), strip)
        assert sorted(path.name for path in out.iterdir()) == expected
    assert package_uri(package.digest) != ""


def test_environment_variables_change_what_travels(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "venv").mkdir()
    for name in (".gitignore", ".rayignore", "git", "ray", "venv/x"):
        (tmp_path / name).write_text({".gitignore": "git\n", ".rayignore": "ray\n"}.get(name, ""))

    def travels() -> set[str]:
        return {entry.path for entry in archive.manifest(str(tmp_path))} - {".gitignore", ".rayignore"}

    assert travels() == set()
    monkeypatch.setenv("RAY_RUNTIME_ENV_IGNORE_GITIGNORE", "1")
    assert travels() == {"git"}
    monkeypatch.setenv("RAY_OVERRIDE_RUNTIME_ENV_DEFAULT_EXCLUDES", "")
    assert travels() == {"git", "venv/x"}
