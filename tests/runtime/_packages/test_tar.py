"""What members of a tar archive may do, by Python's own checks and by ours for Pythons that have none."""

from __future__ import annotations

import io
import os
import shutil
import subprocess
import tarfile
from pathlib import Path

import pytest

from runtime._packages import tar

PYTHONS = ("/usr/bin/python3", "/usr/bin/python3.11", "python3.11")


def member(name: str, kind: bytes = tarfile.REGTYPE, link: str = "", mode: int = 0o644) -> tarfile.TarInfo:
    made = tarfile.TarInfo(name)
    made.type, made.linkname, made.mode = kind, link, mode
    made.uid, made.gid, made.uname = 12345, 12345, "nobody-here"
    return made


def archive_of(*members: tarfile.TarInfo) -> tarfile.TarFile:
    """An archive whose files hold "new"."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as made:
        for info in members:
            info.size = 3 if info.isreg() else 0
            made.addfile(info, io.BytesIO(b"new") if info.isreg() else None)
    buffer.seek(0)
    return tarfile.open(fileobj=buffer)


def extract_each(archive: tarfile.TarFile, folder: str) -> None:
    for info in archive:
        tar.extract(archive, info, folder)


@pytest.fixture(params=["with filters", "without"])
def folder(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "without":
        monkeypatch.setattr(tar, "_HAS_FILTERS", False)
    elif not hasattr(tarfile, "data_filter"):
        pytest.skip("this Python has no filters")
    (tmp_path / "outside").write_text("old")
    (tmp_path / "in").mkdir()
    return str(tmp_path / "in")


UNSAFE = {
    "a path upwards": [member("../outside")],
    "a symbolic link upwards": [member("x", tarfile.SYMTYPE, "../outside"), member("x")],
    "a file through a symbolic link": [member("x", tarfile.SYMTYPE, ".."), member("x/outside")],
    "a hard link upwards": [member("x", tarfile.LNKTYPE, "../outside"), member("x")],
    "an absolute link": [member("x", tarfile.SYMTYPE, "/etc/passwd")],
    "a device": [member("x", tarfile.CHRTYPE)],
    "a pipe": [member("x", tarfile.FIFOTYPE)],
}


@pytest.mark.parametrize("members", UNSAFE.values(), ids=UNSAFE.keys())
def test_nothing_leads_out_of_the_folder(folder: str, members: list[tarfile.TarInfo]) -> None:
    with archive_of(*members) as archive, pytest.raises(tarfile.TarError):
        tar.extract_all(archive, folder)
    assert Path(folder, "../outside").read_text() == "old"


def test_files_folders_and_links_are_extracted(folder: str) -> None:
    with archive_of(
        member("sub", tarfile.DIRTYPE, mode=0o555),
        member("sub/run", mode=0o4755),
        member("/absolute", mode=0o666),
        member("hard", tarfile.LNKTYPE, "sub/run", mode=0o755),
        member("soft", tarfile.SYMTYPE, "sub/run"),
    ) as archive:
        tar.extract_all(archive, folder)
    found = Path(folder)
    assert (found / "soft").read_text() == (found / "hard").read_text() == "new"
    assert (found / "sub/run").stat().st_mode & 0o7777 == 0o755
    assert (found / "absolute").stat().st_mode & 0o7777 == 0o644
    assert (found / "absolute").stat().st_uid == os.getuid()


@pytest.mark.parametrize("kind", ["a path upwards", "a file through a symbolic link", "a hard link upwards"])
def test_a_single_member_is_not_written_outside(folder: str, kind: str) -> None:
    with archive_of(*UNSAFE[kind]) as archive, pytest.raises(tar.UnsafeMember):
        extract_each(archive, folder)
    assert Path(folder, "../outside").read_text() == "old"


def test_a_single_member_keeps_its_permissions(folder: str) -> None:
    with archive_of(member("run", mode=0o770), member("far", tarfile.SYMTYPE, "/nowhere")) as archive:
        extract_each(archive, folder)
    assert Path(folder, "run").stat().st_mode & 0o777 == 0o770
    assert os.readlink(f"{folder}/far") == "/nowhere"


def test_a_python_without_filters_extracts_too(tmp_path: Path) -> None:
    question = "import sys, tarfile; sys.exit(hasattr(tarfile, 'data_filter') or sys.version_info < (3, 11))"
    found = [path for name in PYTHONS if (path := shutil.which(name))]
    old = [path for path in found if not subprocess.run([path, "-c", question], check=False).returncode]
    if not old:
        pytest.skip("no Python before 3.11.4 is here")
    path = tmp_path / "x.tar"
    with tarfile.open(path, "w") as made:
        for info in (member("good"), member("../bad")):
            info.size = 3
            made.addfile(info, io.BytesIO(b"new"))
    program = f"""
import runpy, sys, tarfile
tar = runpy.run_path({tar.__file__!r})
with tarfile.open({str(path)!r}) as archive:
    try:
        tar["extract_all"](archive, {str(tmp_path / "in")!r})
    except tar["UnsafeMember"] as error:
        print(error)
"""
    done = subprocess.run([old[0], "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "../bad would be written outside of the folder\n"
    assert (tmp_path / "in/good").read_text() == "new"
