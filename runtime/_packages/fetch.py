"""Fetches one remote archive: `python -m runtime._packages.fetch URI FILE`.

A process of its own, so that it can be ended at any time, and so that a cloud's library does not stay in the agent.
"""

from __future__ import annotations

import ipaddress
import shutil
import sys
import urllib.error
import urllib.parse
from typing import BinaryIO, cast

from runtime._system import settings

_TIMEOUT_S = 60.0
_LIBRARIES = {"s3": "s3fs", "gs": "gcsfs", "azure": "adlfs", "abfss": "adlfs"}


class FetchError(Exception):
    """What a URI names cannot be had."""


def fetch(uri: str, file: str) -> None:
    """Copies what `uri` names to a new file.

    Raises:
        FetchError: it cannot be had; says why.
    """
    scheme = uri.partition("://")[0]
    try:
        with _open(uri, scheme) as source, open(file, "wb") as target:
            shutil.copyfileobj(source, target, 1 << 20)
    except ImportError as error:
        raise FetchError(
            f"{scheme}:// needs the Python packages fsspec and {_LIBRARIES[scheme]} on every node: {error}"
        ) from error
    except urllib.error.HTTPError as error:
        hint = ""
        if error.code in (401, 403) and settings.BEARER_TOKEN.get():
            hint = "; RAY_RUNTIME_ENV_BEARER_TOKEN goes to the server in the URI only, and only over https"
        raise FetchError(f"the server answers {error.code} {error.reason}{hint}") from error
    except Exception as error:  # fsspec's libraries raise errors of their own
        raise FetchError(f"{type(error).__name__}: {error}") from error


def path_of(uri: str) -> str:
    """The path in a file:// URI."""
    return urllib.parse.unquote(uri.removeprefix("file://"))


def _open(uri: str, scheme: str) -> BinaryIO:
    if scheme == "file":
        return open(path_of(uri), "rb")
    if scheme in ("http", "https"):
        import urllib.request  # brings half the standard library along: not into the agent

        request = urllib.request.Request(uri)
        token = settings.BEARER_TOKEN.get()
        if token and _is_private(uri):
            # Not to where the server may redirect us.
            request.add_unredirected_header("Authorization", f"Bearer {token}")
        return cast(BinaryIO, urllib.request.urlopen(request, timeout=_TIMEOUT_S))
    import fsspec

    return cast(BinaryIO, fsspec.open(uri, "rb").open())


def _is_private(uri: str) -> bool:
    """Whether nobody on the way can read what is sent there: https, or a server of this machine."""
    parts = urllib.parse.urlsplit(uri)
    if parts.scheme == "https":
        return True
    try:
        return ipaddress.ip_address(parts.hostname or "").is_loopback
    except ValueError:
        return parts.hostname == "localhost"


def main() -> None:
    """Entry point: exits with 1 and the reason on standard error when it fails."""
    try:
        fetch(sys.argv[1], sys.argv[2])
    except FetchError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
