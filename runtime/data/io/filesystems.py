"""Which file system a path belongs to: always a `pyarrow.fs.FileSystem`, also around those of fsspec."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from runtime.data._libraries import load, missing

if TYPE_CHECKING:
    import pyarrow.fs as pafs

_ARROW_SCHEMES = frozenset({"s3", "gs", "gcs", "hdfs", "viewfs", "abfs", "abfss"})
_PACKAGES = {
    "http": "aiohttp",
    "https": "aiohttp",
    "az": "adlfs",
    "hf": "huggingface_hub",
    "sftp": "paramiko",
}


def resolve(
    paths: str | os.PathLike[str] | Sequence[Any], filesystem: Any = None
) -> tuple[pafs.FileSystem, list[str]]:
    """The file system of paths, and the paths as it names them.

    Args:
        paths: One or several, with or without a scheme. Local ones may start with "~".
        filesystem: A file system of pyarrow or fsspec that overrules the schemes.

    Raises:
        ValueError: No paths, or paths of several file systems.
        ImportError: A library for the scheme is not installed.
    """
    given = [paths] if isinstance(paths, str | os.PathLike) else list(paths)
    if not given:
        raise ValueError("No paths were given.")
    for path in given:
        if not isinstance(path, str | os.PathLike):
            raise ValueError(
                f"A path must be a string or a pathlib.Path, not {type(path).__name__}: {path!r:.100}"
            )
    texts = [os.fspath(path) for path in given]
    if filesystem is not None:
        return _adopted(filesystem, texts)
    schemes = {_scheme(text) for text in texts}
    if len(schemes) > 1:
        raise ValueError(
            f"All paths of one read must be on the same file system, but these are on {sorted(schemes)}."
            " Read them one by one and use union()."
        )
    scheme = schemes.pop()
    if scheme == "file":
        return _local(texts)
    if scheme in _ARROW_SCHEMES:
        return _of_arrow(scheme, texts)
    return _of_fsspec(scheme, texts)


def is_local(filesystem: pafs.FileSystem) -> bool:
    """Whether files are on this machine's disks, so that reading ahead gains nothing."""
    return bool(filesystem.type_name == "local")


def is_this_machine_only(paths: str | os.PathLike[str] | Sequence[Any]) -> bool:
    """Whether a path says by its scheme, local://, that other machines do not have it."""
    given = [paths] if isinstance(paths, str | os.PathLike) else paths
    return any(str(path).lower().startswith("local://") for path in given)


def _scheme(path: str) -> str:
    scheme, separator, _ = path.partition("://")
    return scheme.lower() if separator and scheme.lower() != "local" else "file"


def _local(texts: list[str]) -> tuple[pafs.FileSystem, list[str]]:
    import pyarrow.fs as pafs

    bare = [text.partition("://")[2] if "://" in text else text for text in texts]
    return pafs.LocalFileSystem(), [os.path.abspath(os.path.expanduser(text)) for text in bare]


def _of_arrow(scheme: str, texts: list[str]) -> tuple[pafs.FileSystem, list[str]]:
    """Makes the file system from the scheme, the host and the query; paths need no quoting."""
    import pyarrow.fs as pafs

    bare = [text.partition("://")[2] for text in texts]
    host, _, _ = bare[0].partition("/")
    _, _, query = (
        bare[0].partition("?") if "?" in bare[0] and "=" in bare[0].partition("?")[2] else ("", "", "")
    )
    uri = f"{'gs' if scheme == 'gcs' else scheme}://{host.partition('?')[0]}" + (f"?{query}" if query else "")
    filesystem, _ = pafs.FileSystem.from_uri(uri)
    if query:
        bare = [text.removesuffix(f"?{query}") for text in bare]
    if scheme in ("hdfs", "viewfs"):
        bare = ["/" + text.partition("/")[2] for text in bare]
    elif scheme in ("abfs", "abfss"):
        bare = [
            text.partition("@")[0] + "/" + text.partition("/")[2] if "@" in text else text for text in bare
        ]
    return filesystem, [text.rstrip("/") for text in bare]


def _of_fsspec(scheme: str, texts: list[str]) -> tuple[pafs.FileSystem, list[str]]:
    url_to_fs = load("fsspec.core", f"{scheme}://").url_to_fs
    from runtime.data.io.fsspec_handler import adopt

    try:
        filesystem, _ = url_to_fs(texts[0])
    except ImportError as error:
        raise missing(scheme, f"{scheme}://", _PACKAGES.get(scheme)) from error
    return adopt(filesystem), [filesystem._strip_protocol(text) for text in texts]


def _adopted(filesystem: Any, texts: list[str]) -> tuple[pafs.FileSystem, list[str]]:
    import pyarrow.fs as pafs

    if isinstance(filesystem, pafs.FileSystem):
        if is_local(filesystem):
            return filesystem, _local(texts)[1]
        return filesystem, [text.partition("://")[2] if "://" in text else text for text in texts]
    if hasattr(filesystem, "_strip_protocol") and hasattr(filesystem, "open"):
        from runtime.data.io.fsspec_handler import adopt

        stripped = [filesystem._strip_protocol(text) for text in texts]
        return adopt(filesystem), stripped
    raise ValueError(f"filesystem must be one of pyarrow.fs or fsspec, not {type(filesystem).__name__}.")
