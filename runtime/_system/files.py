"""What is done with files everywhere. Daemons come up faster without `pathlib` and `shutil`."""

from __future__ import annotations

import contextlib
import os


def remove(path: str) -> None:
    """Removes a file, if it is there."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)


def replace(path: str, data: bytes) -> None:
    """Writes a file that only this user may read: whole or not at all, also when the process is killed or the machine
    fails. Until then the file is as it was, or missing.

    Raises:
        OSError: it cannot be written.
    """
    folder, name = os.path.split(path)
    draft = os.path.join(folder, f".{name}.{os.urandom(4).hex()}")
    try:
        with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(draft, path)
    except OSError:
        remove(draft)
        raise


def tail(path: str, limit_bytes: int) -> str:
    """The end of a log.

    Raises:
        OSError: it cannot be read.
    """
    with open(path, "rb") as file:
        file.seek(max(0, os.fstat(file.fileno()).st_size - limit_bytes))
        return file.read(limit_bytes).decode(errors="replace").strip()


def read(path: str) -> str:
    """A small text file, such as those of the kernel.

    Raises:
        OSError: it cannot be read.
    """
    with open(path, encoding="utf-8", errors="replace") as file:
        return file.read()


def read_secret(path: str) -> bytes:
    """A cluster's secret.

    Raises:
        OSError: the file cannot be read or is empty.
    """
    try:
        with open(path, "rb") as file:
            secret = file.read().strip()
    except OSError as error:
        raise OSError(error.errno, f"cannot read the secret file {path}: {error.strerror}") from error
    if not secret:
        raise OSError(0, f"the secret file {path} is empty")
    return secret


def remove_tree(path: str) -> None:
    """Removes a folder with all that is in it, as far as that is possible."""
    if os.path.lexists(path):
        import shutil  # few processes ever need it

        shutil.rmtree(path, ignore_errors=True)
