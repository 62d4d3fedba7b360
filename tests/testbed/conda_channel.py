"""A conda channel in a folder: the Python that runs the tests, pip, and packages of a few lines."""

from __future__ import annotations

import ensurepip
import hashlib
import io
import json
import os
import platform
import sys
import sysconfig
import tarfile
import zipfile
from collections.abc import Mapping
from pathlib import Path

SUBDIR = {"x86_64": "linux-64", "aarch64": "linux-aarch64"}.get(platform.machine(), "linux-64")
SITE = "site-packages"
VERSION = platform.python_version()
_SHORT = ".".join(map(str, sys.version_info[:2]))
Files = Mapping[str, bytes | Path]
"""Contents by their places in an environment; a path is the target of a link."""


class Channel:
    """The channel in `folder`; `url` is what an environment names."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.url = folder.as_uri()
        self._records: dict[str, dict[str, dict[str, object]]] = {SUBDIR: {}, "noarch": {}}
        self._write()

    def add(self, name: str, version: str, files: Files, depends: list[str], noarch: str = "") -> None:
        """Adds a package.

        Args:
            noarch: "python" for one whose files are below `site-packages`; "" for one of this machine's kind.
        """
        subdir = "noarch" if noarch else SUBDIR
        index: dict[str, object] = {"name": name, "version": version, "build": "0", "build_number": 0}
        index |= {"depends": depends, "subdir": subdir, "timestamp": 1700000000000}
        metadata: dict[str, bytes] = {}
        if noarch:
            index["noarch"] = noarch
            metadata["info/link.json"] = _json({"noarch": {"type": noarch}, "package_metadata_version": 1})
        metadata["info/index.json"] = _json(index)
        metadata["info/paths.json"] = _json(
            {"paths": [_entry(*file) for file in files.items()], "paths_version": 1}
        )
        metadata["info/files"] = "".join(f"{path}\n" for path in files).encode()
        data = _archive({**metadata, **files})
        file = f"{name}-{version}-0.tar.bz2"
        (self.folder / subdir / file).write_bytes(data)
        digests = {"sha256": hashlib.sha256(data).hexdigest(), "md5": hashlib.md5(data).hexdigest()}
        self._records[subdir][file] = {**index, **digests, "size": len(data)}
        self._write()

    def add_python(self, version: str = VERSION) -> None:
        """This Python. As a virtual environment's does, it finds its standard library by its home."""
        base = Path(os.path.realpath(sys.executable))
        home = f"home = {base.parent}\ninclude-system-site-packages = false\nversion = {VERSION}\n"
        files: dict[str, bytes | Path] = {
            f"bin/python{_SHORT}": base,
            "bin/python": Path(f"python{_SHORT}"),
            "pyvenv.cfg": home.encode(),
            f"lib/python{_SHORT}/{SITE}/README": b"",
        }
        self.add("python", version, files, [])

    def add_pip(self) -> None:
        """The pip that comes with this Python."""
        # Debian keeps it in a folder of its own.
        bundled = sysconfig.get_config_var("WHEEL_PKG_DIR") or Path(ensurepip.__file__).parent / "_bundled"
        [wheel] = Path(bundled).glob("pip-*.whl")
        with zipfile.ZipFile(wheel) as archive:
            files = {f"{SITE}/{name}": archive.read(name) for name in archive.namelist() if name[-1] != "/"}
        self.add("pip", wheel.name.split("-")[1], files, ["python"], "python")

    def _write(self) -> None:
        for subdir, records in self._records.items():
            folder = self.folder / subdir
            folder.mkdir(parents=True, exist_ok=True)
            data = {
                "info": {"subdir": subdir},
                "packages": records,
                "packages.conda": {},
                "repodata_version": 1,
            }
            (folder / "repodata.json").write_bytes(_json(data))


def _json(value: object) -> bytes:
    return json.dumps(value).encode()


def _entry(path: str, content: bytes | Path) -> dict[str, object]:
    data = content if isinstance(content, bytes) else b""
    kind = "hardlink" if isinstance(content, bytes) else "softlink"
    digest = hashlib.sha256(data).hexdigest()
    return {"_path": path, "path_type": kind, "sha256": digest, "size_in_bytes": len(data)}


def _archive(files: Files) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:bz2", compresslevel=1) as archive:
        for path, content in files.items():
            info = tarfile.TarInfo(path)
            info.mode = 0o755
            if isinstance(content, bytes):
                info.size = len(content)
                archive.addfile(info, io.BytesIO(content))
            else:
                info.type, info.linkname = tarfile.SYMTYPE, str(content)
                archive.addfile(info)
    return buffer.getvalue()
