"""Packages: what travels, and that equal folders give equal bytes."""

from __future__ import annotations

import ctypes
import io
import os
import pathlib
import zipfile
from collections.abc import Iterator

import pytest

from clusterctl.errors import CliError, NotFound, UsageProblem
from clusterctl.jobs import client
from clusterctl.jobs.package import manifest, pack, unpack
from runtime._packages import archive


def folder(root: pathlib.Path, files: dict[str, str]) -> str:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return str(root)


def test_what_never_travels(tmp_path: pathlib.Path) -> None:
    names = (
        "job.py",
        ".git/config",
        ".venv/x",
        "venv/x",
        "__pycache__/j.pyc",
        "sub/__pycache__/x",
        "sub/y.py",
    )
    root = folder(tmp_path, dict.fromkeys(names, ""))
    assert [entry.path for entry in manifest(root)] == ["job.py", "sub/y.py"]


def test_gitignore_is_honoured_at_every_depth(tmp_path: pathlib.Path) -> None:
    root = folder(
        tmp_path,
        {
            ".gitignore": "*.csv\ndata/\n",
            "a.csv": "",
            "data/x": "",
            "sub/.gitignore": "!b.csv\n/c\n",
            "sub/b.csv": "",
            "sub/c": "",
        },
    )
    paths = [entry.path for entry in manifest(root)]
    assert paths == [".gitignore", "sub/.gitignore", "sub/b.csv"]
    assert len(manifest(root, use_gitignore=False)) == 6


def test_links_to_files_travel_and_links_to_folders_do_not(tmp_path: pathlib.Path) -> None:
    root = folder(tmp_path / "root", {"a.py": "x"})
    os.symlink(tmp_path, tmp_path / "root" / "circle")
    os.symlink(tmp_path / "root" / "a.py", tmp_path / "root" / "b.py")
    os.symlink("/nowhere", tmp_path / "root" / "dangling")
    assert [entry.path for entry in manifest(root)] == ["a.py", "b.py"]


def test_equal_folders_give_equal_packages(tmp_path: pathlib.Path) -> None:
    files = {"b.py": "1", "a/c.py": "2"}
    one, two = folder(tmp_path / "one", files), folder(tmp_path / "two", dict(reversed(files.items())))
    os.utime(tmp_path / "two" / "b.py", (0, 0))
    assert pack(one, manifest(one)).digest == pack(two, manifest(two)).digest
    (tmp_path / "two" / "b.py").chmod(0o755)
    assert pack(one, manifest(one)).digest != pack(two, manifest(two)).digest


def test_packing_and_unpacking_keeps_contents_and_modes(tmp_path: pathlib.Path) -> None:
    root = folder(tmp_path / "in", {"run.sh": "echo", "deep/data": "é"})
    (tmp_path / "in" / "run.sh").chmod(0o700)
    unpack(pack(root, manifest(root)).data, str(tmp_path / "out"))
    assert (tmp_path / "out" / "deep" / "data").read_text() == "é"
    assert os.access(tmp_path / "out" / "run.sh", os.X_OK)
    assert not os.access(tmp_path / "out" / "deep" / "data", os.X_OK)


def test_too_big_a_folder_names_its_biggest_files(tmp_path: pathlib.Path) -> None:
    root = folder(tmp_path, {"small": "x", "big": "x" * 2000})
    with pytest.raises(UsageProblem) as refused:
        pack(root, manifest(root), limit_bytes=1000)
    assert "big" in refused.value.message.splitlines()[1]
    assert ".gitignore" in refused.value.hint


def test_too_many_files(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = folder(tmp_path, {str(i): "" for i in range(4)})
    monkeypatch.setattr(archive, "LIMIT_FILES", 3)
    with pytest.raises(UsageProblem, match="more than 3 files"):
        manifest(root)


@pytest.mark.parametrize("name", ["../out", "/abs", "a/../../b"])
def test_paths_that_lead_out_are_refused(tmp_path: pathlib.Path, name: str) -> None:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr(name, "x")
    with pytest.raises(ValueError, match="leads out"):
        unpack(buffer.getvalue(), str(tmp_path))


def test_what_is_no_zip_is_refused(tmp_path: pathlib.Path) -> None:
    with pytest.raises(ValueError, match="not a zip"):
        unpack(b"nonsense", str(tmp_path))


def test_a_script_is_prepared_with_its_folder(tmp_path: pathlib.Path) -> None:
    root = folder(tmp_path, {"sub/job.py": "", "sub/other.py": "", "top.py": ""})
    made, entrypoint = client.prepare(f"{root}/sub/job.py", ["a b", "--x"], None)
    assert made.files == 2
    assert entrypoint == "python -u job.py 'a b' --x"
    made, entrypoint = client.prepare(f"{root}/sub/job.py", [], root)
    assert made.files == 3
    assert entrypoint == "python -u sub/job.py"
    _, entrypoint = client.prepare(f"{root}/sub/job.py", ["x"], None, ray_compat=True)
    assert entrypoint == "python -u -m runtime.compat.ray job.py x"


def test_scripts_that_cannot_travel(tmp_path: pathlib.Path) -> None:
    root = folder(tmp_path, {"a/job.py": "", "b/x": "", "a/.gitignore": "job.py"})
    with pytest.raises(NotFound, match="there is no file"):
        client.prepare(f"{root}/none.py", [], None)
    with pytest.raises(UsageProblem, match="gitignore"):
        client.prepare(f"{root}/a/job.py", [], None)
    with pytest.raises(UsageProblem, match="not inside"):
        client.prepare(f"{root}/a/job.py", [], f"{root}/b")


def test_what_is_no_file_stays_behind(tmp_path: pathlib.Path) -> None:
    root = folder(tmp_path, {"job.py": ""})
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "nowhere").symlink_to("missing")
    (tmp_path / "circle").symlink_to("circle")
    assert [entry.path for entry in manifest(root)] == ["job.py"]


@pytest.fixture
def no_file_powers() -> Iterator[None]:
    """Root may read everything: without these two capabilities it is a user like any other."""
    libc = ctypes.CDLL(None, use_errno=True)
    header = (ctypes.c_uint32 * 2)(0x20080522, 0)  # version 3 of the call, this thread
    before = (ctypes.c_uint32 * 6)()
    assert libc.capget(header, before) == 0
    changed = (ctypes.c_uint32 * 6)(*before)
    changed[0] &= ~(1 << 1 | 1 << 2)  # effective: CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH
    assert libc.capset(header, changed) == 0
    yield
    assert libc.capset(header, before) == 0


@pytest.mark.usefixtures("no_file_powers")
@pytest.mark.parametrize("name", ["closed/", "key", ".gitignore"])
def test_what_may_not_be_read_is_named(tmp_path: pathlib.Path, name: str) -> None:
    root = folder(tmp_path, {"job.py": ""})
    path = tmp_path / name
    path.mkdir() if name.endswith("/") else path.write_text("")
    path.chmod(0)
    with pytest.raises(CliError, match=rf"{name.rstrip('/')} cannot be read: Permission denied"):
        pack(root, manifest(root))


def test_a_folder_is_no_program(tmp_path: pathlib.Path) -> None:
    with pytest.raises(NotFound, match="is a folder"):
        client.prepare(str(tmp_path), [], None)


def test_likely_secrets_stay_behind_and_are_named(tmp_path: pathlib.Path) -> None:
    names = (
        "job.py",
        ".ssh/id_other",
        ".aws/credentials",
        ".env",
        ".env.production",
        ".env.example",
        "deploy/id_ed25519",
        "deploy/.netrc",
        ".config/gcloud/credentials.db",
        ".config/tool.toml",
        "docs/ssh.md",
    )
    root = folder(tmp_path, dict.fromkeys(names, "x"))
    told: list[str] = []
    package, _ = client.prepare(f"{root}/job.py", [], None, tell=told.append)
    unpacked = tmp_path / "unpacked"
    unpack(package.data, str(unpacked))
    found = sorted(str(path.relative_to(unpacked)) for path in unpacked.rglob("*") if path.is_file())
    assert found == [".config/tool.toml", ".env.example", "docs/ssh.md", "job.py"]
    assert ".aws/credentials" in told[1]
    assert "2 more" in told[1]


def test_a_secret_travels_when_it_is_asked_for(tmp_path: pathlib.Path) -> None:
    root = folder(tmp_path, {"job.py": "", ".env": "A=1", "sub/.netrc": ""})
    told: list[str] = []
    package, _ = client.prepare(f"{root}/job.py", [], None, excludes=["!.env"], tell=told.append)
    assert package.files == 2
    assert told[1].startswith("left out as likely secrets: sub/.netrc.")


def test_what_travels_is_told_first(tmp_path: pathlib.Path) -> None:
    root = folder(tmp_path, {"job.py": "x", "data.csv": "y" * 2048})
    told: list[str] = []
    client.prepare(f"{root}/job.py", [], None, tell=told.append)
    assert told == [f"packaging {root}: 2 files, 2.0 KiB; largest data.csv (2.0 KiB)"]


@pytest.mark.parametrize("place", ["home", "above", "root", "link"])
def test_the_home_folder_does_not_travel(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    home = tmp_path / "homes" / "ann"
    folder(home, {"job.py": ""})
    monkeypatch.setenv("HOME", str(home))
    (tmp_path / "link").symlink_to(home)
    root = {"home": home, "above": home.parent, "root": pathlib.Path("/"), "link": tmp_path / "link"}[place]
    with pytest.raises(UsageProblem, match="would travel") as raised:
        client.prepare(str(root / "job.py") if place == "link" else str(home / "job.py"), [], str(root))
    assert "--working-dir" in str(raised.value.hint)
    folder(home / "project", {"job.py": ""})
    client.prepare(str(home / "project" / "job.py"), [], None)
