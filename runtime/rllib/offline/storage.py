"""Where offline data lies: the readers and writers of `runtime.data`, and file systems by name."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from typing import Any


def reader(method: str | Callable[..., Any]) -> Callable[..., Any]:
    """`runtime.data.read_...` by its name, or the user's own function.

    Raises:
        ValueError: there is no reader of this name.
    """
    if callable(method):
        return method
    import runtime.data

    found = getattr(runtime.data, method, None) if method.startswith(("read_", "from_")) else None
    if found is None:
        raise ValueError(f"input_read_method={method!r} is no reader of runtime.data, such as 'read_parquet'")
    return found


def filesystem_of(name: Any, options: Mapping[str, Any]) -> Any:
    """The file system of `input_filesystem` or `output_filesystem`; None for the one that the path names.

    Raises:
        ValueError: the name is unknown.
        ImportError: its package is missing.
    """
    if name is None or not isinstance(name, str):
        return name
    if name == "s3":
        from pyarrow import fs

        return fs.S3FileSystem(**options)
    packages = {"gcs": ("gcsfs", "GCSFileSystem"), "abs": ("adlfs", "AzureBlobFileSystem")}
    if name not in packages:
        raise ValueError(
            f"Unknown file system {name!r} for offline data: use 's3', 'gcs', 'abs' or a file system object"
        )
    package, kind = packages[name]
    try:
        module = importlib.import_module(package)
    except ImportError as error:
        raise ImportError(
            f"The file system {name!r} needs the package {package}: pip install {package}"
        ) from error
    return getattr(module, kind)(**options)
